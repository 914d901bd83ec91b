"""The chart, and the kustomize base made of it: by the API's schemas, and in accord with the router."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import helm_python
import jsonschema_rs
import kubernetes_validate
import pytest
import yaml

from router.checking import Found, checked
from router.layers import load
from router.observe.table import metric_table
from tests.deploy.dockerfile import only, stages
from tests.deploy.rendering import BASE, COMPONENTS, PARTS, files, objects
from tests.deploy.values import CHART, DEPLOY, VALUES_SCHEMA, values_schema_text

if TYPE_CHECKING:
    from pathlib import Path

VERSIONS = ("1.27", "1.37")
EVERYTHING: dict[str, Any] = {
    "image": {"repository": "registry.example/kv-router", "tag": "1"},
    "imagePullSecrets": [{"name": "pull"}],
    "config": {"kubernetes_namespaces": ["a", "b"], "policy": "random", "epp_port": 9002, "max_inflight": 9},
    "env": [{"name": "KV_ROUTER_LOG_LEVEL", "value": "debug"}],
    "service": {"type": "LoadBalancer", "annotations": {"a": "b"}},
    "serviceAccount": {"annotations": {"a": "b"}},
    "autoscaling": {"enabled": True},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "networkPolicy": {"from": [{"namespaceSelector": {"matchLabels": {"team": "a"}}}]},
    "podAnnotations": {"a": "b"},
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"nodeAffinity": {}},
}
CHOICES: dict[str, dict[str, Any]] = {
    "default": {},
    "everything": EVERYTHING,
    "secured": {
        "config": {
            "port": 9000,
            "host": "::",
            "tls_cert": "/tls/tls.crt",
            "record": "/record",
            "protect_metrics": "on",
            "api_keys": "/tls/keys",
        },
        "podMonitor": {"enabled": True, "authorization": {"credentials": {"name": "key", "key": "of"}}},
        "networkPolicy": {"egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}]},
        "extraVolumes": [
            {"name": "tls", "secret": {"secretName": "tls"}},
            {"name": "record", "persistentVolumeClaim": {"claimName": "record"}},
        ],
        "extraVolumeMounts": [
            {"name": "tls", "mountPath": "/tls", "readOnly": True},
            {"name": "record", "mountPath": "/record"},
        ],
    },
    "every namespace": {"config": {"kubernetes_namespaces": ["*"]}},
    "nothing": {
        "rbac": {"create": False},
        "podDisruptionBudget": {"enabled": False},
        "networkPolicy": {"enabled": False},
    },
}
# The Prometheus operator's own kind, which is none of the API's: as far as it is used here.
POD_MONITOR = {
    "type": "object",
    "properties": {
        "jobLabel": {"type": "string"},
        "selector": {"type": "object", "required": ["matchLabels"]},
        "podMetricsEndpoints": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "port": {"type": "string"},
                    "path": {"pattern": "^/"},
                    "interval": {"pattern": "^[0-9]+s$"},
                    "scheme": {"const": "https"},
                    "tlsConfig": {"type": "object"},
                    "authorization": {"type": "object", "required": ["credentials"]},
                },
                "additionalProperties": False,
            },
        },
    },
    "required": ["selector", "podMetricsEndpoints"],
    "additionalProperties": False,
}


def kind(made: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """Return the only object of a kind."""
    (found,) = (each for each in made if each["kind"] == name)
    return found


def test_the_files_of_the_base_are_what_the_chart_renders() -> None:
    for path, text in files().items():
        assert path.read_text() == text, "run python -m tests.deploy.rendering"
    assert VALUES_SCHEMA.read_text() == values_schema_text(), "run python -m tests.reference"


@pytest.mark.parametrize("path", [BASE, *(COMPONENTS / part for part in PARTS)], ids=lambda path: path.name)
def test_a_kustomization_names_all_files_beside_it(path: Path) -> None:
    kustomization = yaml.safe_load((path / "kustomization.yaml").read_text())
    beside = sorted(each.name for each in path.iterdir() if each.name != "kustomization.yaml")
    assert kustomization["resources"] == beside
    assert kustomization["kind"] == ("Kustomization" if path == BASE else "Component")
    assert set(kustomization) <= {"apiVersion", "kind", "namespace", "resources", "patches"}


def test_the_component_of_the_autoscaler_takes_out_what_is_there() -> None:
    (patch,) = yaml.safe_load((COMPONENTS / "autoscaling" / "kustomization.yaml").read_text())["patches"]
    deployment = kind(objects(), patch["target"]["kind"])
    assert deployment["metadata"]["name"] == patch["target"]["name"]
    assert yaml.safe_load(patch["patch"]) == [{"op": "remove", "path": "/spec/replicas"}]
    assert "replicas" in deployment["spec"]
    assert "replicas" not in kind(objects(PARTS["autoscaling"][1]), "Deployment")["spec"]


@pytest.mark.parametrize("choice", CHOICES)
def test_what_the_chart_makes_is_valid_where_it_may_be_installed(choice: str) -> None:
    made = objects(CHOICES[choice], namespace="inference")
    assert made
    for each in made:
        if each["kind"] == "PodMonitor":
            jsonschema_rs.validate(POD_MONITOR, each["spec"])
            continue
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_check_is_strict() -> None:
    deployment = kind(objects(), "Deployment")
    deployment["spec"]["template"]["spec"]["containers"][0]["portz"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[-1], strict=True)


def test_the_linter_of_charts_finds_no_error() -> None:
    found = helm_python.lint(CHART, strict=True)
    assert not found["errors"], found


@pytest.mark.parametrize(
    "values",
    [
        {"config": {"prot": 1}},
        {"config": {"port": "high"}},
        {"replicas": "two"},
        {"podmonitor": {}},
        {"replicas": -3},
        {"config": {"port": 0}},
        {"image": {"repo": "x"}},
        {"networkPolicy": {"apiServerPorts": [0]}},
        {"config": {"protect_metrics": True}},
    ],
)
def test_values_that_mean_nothing_are_refused_by_helm(values: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmError):
        objects(values)


@pytest.mark.parametrize("choice", CHOICES)
def test_selectors_choose_the_pods_and_names_are_those_of_what_is_there(choice: str) -> None:
    made = objects(CHOICES[choice])
    deployment = kind(made, "Deployment")
    template = deployment["spec"]["template"]
    labels, pod = template["metadata"]["labels"], template["spec"]
    selectors = [deployment["spec"]["selector"]["matchLabels"], kind(made, "Service")["spec"]["selector"]]
    for each in made:
        if each["kind"] in {"PodDisruptionBudget", "PodMonitor"}:
            selectors.append(each["spec"]["selector"]["matchLabels"])
        if each["kind"] == "NetworkPolicy":
            selectors.append(each["spec"]["podSelector"]["matchLabels"])
        if each["kind"] == "HorizontalPodAutoscaler":
            assert each["spec"]["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
        if each["kind"].endswith("RoleBinding"):
            assert each["subjects"][0]["name"] == pod["serviceAccountName"]
    assert all(selector.items() <= labels.items() for selector in selectors)
    assert kind(made, "ServiceAccount")["metadata"]["name"] == pod["serviceAccountName"]
    assert pod["volumes"][0]["configMap"]["name"] == kind(made, "ConfigMap")["metadata"]["name"]


@pytest.mark.parametrize("choice", CHOICES)
def test_the_router_takes_the_file_that_it_is_given(choice: str, tmp_path: Path) -> None:
    made = objects(CHOICES[choice])
    path = tmp_path / "router.yaml"
    path.write_text(kind(made, "ConfigMap")["data"]["router.yaml"])
    assert checked(str(path), {}) == Found()
    config = load({"config": str(path)}, {})
    pod = kind(made, "Deployment")["spec"]["template"]["spec"]
    assert config.discover == "kubernetes"
    assert pod["terminationGracePeriodSeconds"] > config.leave_seconds + config.grace_seconds
    (container,) = pod["containers"]
    (variable,) = (each["value"] for each in container["env"] if each["name"] == "KV_ROUTER_CONFIG")
    assert variable == f"{container['volumeMounts'][0]['mountPath']}/{path.name}"


def test_roles_allow_what_discovery_asks_for_and_no_more() -> None:
    for namespaces, found in ((["a", "b"], "Role"), (["*"], "ClusterRole"), ([], "Role")):
        roles = [
            each
            for each in objects({"config": {"kubernetes_namespaces": namespaces}})
            if each["kind"] == found
        ]
        assert [role["metadata"].get("namespace", "*") for role in roles] == (namespaces or ["*"])
        for role in roles:
            allowed = {
                (group, what)
                for rule in role["rules"]
                for group in rule["apiGroups"]
                for what in rule["resources"]
            }
            assert allowed == {("", "pods"), ("discovery.k8s.io", "endpointslices")}
            assert all(rule["verbs"] == ["get", "list", "watch"] for rule in role["rules"])


def test_a_port_of_the_endpoint_picker_is_there_when_it_is_wanted() -> None:
    for choice, ports in (({}, ["http"]), (EVERYTHING, ["http", "grpc"])):
        made = objects(choice)
        (container,) = kind(made, "Deployment")["spec"]["template"]["spec"]["containers"]
        assert [port["name"] for port in container["ports"]] == ports
        assert [port["targetPort"] for port in kind(made, "Service")["spec"]["ports"]] == ports
        (rule,) = kind(made, "NetworkPolicy")["spec"]["ingress"]
        assert [port["port"] for port in rule["ports"]] == ports


def test_the_pod_is_the_image_and_what_is_scaled_by_is_a_metric() -> None:
    made = objects(EVERYTHING)
    pod = kind(made, "Deployment")["spec"]["template"]["spec"]
    user = pod["securityContext"]
    final = stages(DEPLOY.parent / "Dockerfile")[-1]
    assert only(final, "USER") == f"{user['runAsUser']}:{user['runAsGroup']}"
    assert str(pod["containers"][0]["ports"][0]["containerPort"]) == only(final, "EXPOSE")
    (metric,) = kind(made, "HorizontalPodAutoscaler")["spec"]["metrics"]
    assert f"| `{metric['pods']['metric']['name']}` |" in metric_table()
