"""The router's settings in the chart's values: what is made of them beside the file, and what is refused."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml
from helm_python import HelmError

from tests.deploy.rendering import BASE, objects
from tests.deploy.values import DEPLOY


def only(values: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the only object of a kind."""
    (found,) = (each for each in objects(values) if each["kind"] == name)
    return found


def egress(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return where the router may connect to."""
    rules: list[dict[str, Any]] = only(values, "NetworkPolicy")["spec"]["egress"]
    return rules


def workers(values: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the selectors of pods that it may connect to."""
    return [to["podSelector"] for rule in egress(values) for to in rule.get("to", ()) if "podSelector" in to]


def ports(values: dict[str, Any]) -> set[int]:
    """Return the ports that it may connect to anywhere."""
    return {port["port"] for rule in egress(values) if "to" not in rule for port in rule["ports"]}


def container(values: dict[str, Any]) -> dict[str, Any]:
    """Return the router's own."""
    (found,) = only(values, "Deployment")["spec"]["template"]["spec"]["containers"]
    return dict(found)


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    made: dict[str, Any] = {"key": key, "operator": operator}
    return made | {"values": list(values)} if values else made


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=vllm", {"matchLabels": {"app": "vllm"}}),
        ("app = sglang, tier==a", {"matchLabels": {"app": "sglang", "tier": "a"}}),
        ("app in (vllm, sglang)", {"matchExpressions": [expression("app", "In", "vllm", "sglang")]}),
        (
            "app=x,tier notin (a),!spot,zone,b!=c",
            {
                "matchLabels": {"app": "x"},
                "matchExpressions": [
                    expression("tier", "NotIn", "a"),
                    expression("spot", "DoesNotExist"),
                    expression("zone", "Exists"),
                    expression("b", "NotIn", "c"),
                ],
            },
        ),
        ("app=x,generation>3", {"matchLabels": {"app": "x"}}),
    ],
)
def test_the_workers_that_are_found_may_be_reached(selector: str, found: dict[str, Any]) -> None:
    assert workers({"config": {"kubernetes_selector": selector}}) == [found]


def test_workers_may_be_in_any_namespace() -> None:
    (rule,) = (rule for rule in egress({}) if "to" in rule)
    (to,) = rule["to"]
    assert to["namespaceSelector"] == {}
    assert set(rule) == {"to"}  # at any port


def test_names_are_asked_for_over_udp_and_tcp() -> None:
    asked = [(port["port"], port["protocol"]) for rule in egress({}) for port in rule.get("ports", ())]
    assert {(53, "UDP"), (53, "TCP")} <= set(asked)
    assert {protocol for port, protocol in asked if port != 53} == {"TCP"}


def test_who_says_where_workers_are_is_believed() -> None:
    said = {"matchLabels": {"role": "worker"}}
    for config in ({}, {"discover": "off", "workers": ["http://a:1"]}, {"kubernetes_kind": "endpointslices"}):
        assert workers({"config": config, "networkPolicy": {"workers": said}}) == [said]


def test_what_settings_name_may_be_reached_and_more_can_be() -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    values = {
        "config": {
            "share": "rediss://:secret@redis",
            "otlp": "http://collector:4318/v1/traces",
            "kubernetes_api": "https://10.1.2.3:16443",
        },
        "networkPolicy": {"egress": [rule], "apiServerPorts": [443, 8443]},
    }
    assert ports(values) == {53, 443, 8443, 6379, 4318, 16443}
    assert egress(values)[-1] == rule
    assert ports({"config": {"otlp": "https://collector"}}) == ports({}) == {53, 443, 6443}


def test_workers_that_are_no_pods_need_no_labels() -> None:
    rule = {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}
    values = {"config": {"discover": "off", "worker_file": "/w"}, "networkPolicy": {"egress": [rule]}}
    assert workers(values) == []
    assert rule in egress(values)


PATHS = {"startupProbe": "/health", "livenessProbe": "/health", "readinessProbe": "/ready"}


def test_probes_ask_where_and_how_the_router_serves() -> None:
    plain, tls = ({"port": 9000}, {"port": 9000, "tls_cert": "/tls/tls.crt"})
    for config, scheme in ((plain, {}), (tls, {"scheme": "HTTPS"})):
        made = container({"config": config})
        assert made["ports"] == [{"name": "http", "containerPort": 9000}]
        for probe, path in PATHS.items():
            assert made[probe]["httpGet"] == {"path": path, "port": "http", **scheme}
    mutual = container({"config": {**tls, "tls_client_ca": "/tls/ca.crt"}})
    assert all(mutual[probe]["tcpSocket"] == {"port": "http"} for probe in PATHS)
    assert not any("httpGet" in mutual[probe] for probe in PATHS)


def test_the_address_of_the_file_beats_that_of_the_image() -> None:
    def host(config: dict[str, Any]) -> list[str]:
        return [
            each["value"] for each in container({"config": config})["env"] if each["name"] == "KV_ROUTER_HOST"
        ]

    assert (host({}), host({"host": "::"})) == ([], ["::"])


def test_volumes_are_added_to_those_that_are_there() -> None:
    values = {
        "extraVolumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "extraVolumeMounts": [{"name": "tls", "mountPath": "/tls"}],
    }
    pod = only(values, "Deployment")["spec"]["template"]["spec"]
    assert [volume["name"] for volume in pod["volumes"]] == ["config", "home", "tmp", "tls"]
    assert container(values)["volumeMounts"][-1] == {"name": "tls", "mountPath": "/tls"}


def test_metrics_are_asked_for_as_they_are_protected() -> None:
    key = {"credentials": {"name": "secret", "key": "prometheus"}}
    values = {
        "config": {"protect_metrics": "on", "tls_cert": "/tls/tls.crt"},
        "podMonitor": {"enabled": True, "authorization": key},
    }
    (endpoint,) = only(values, "PodMonitor")["spec"]["podMetricsEndpoints"]
    assert (endpoint["authorization"], endpoint["scheme"]) == (key, "https")
    assert endpoint["tlsConfig"] == {"insecureSkipVerify": True}


def test_a_time_that_is_left_out_is_the_routers_own() -> None:
    values = {"config": {"grace_seconds": None, "leave_seconds": None}}
    pod = only(values, "Deployment")["spec"]["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] == 30 + 10


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"env": [{"name": "KV_ROUTER_TLS_CERT", "value": "/tls/tls.crt"}]},
            "env: KV_ROUTER_TLS_CERT: expected config.tls_cert instead",
        ),
        ({"config": {"host": "127.0.0.1"}}, "config.host: expected 0.0.0.0 or ::"),
        (
            {"config": {"admin_key": "a-key-of-sixteen-characters"}},
            "config.admin_key: a ConfigMap is no place for a key: expected KV_ROUTER_ADMIN_KEY in the Secret",
        ),
        ({"config": {"api_key": ["sk-0123456789"]}}, "expected KV_ROUTER_API_KEY in the Secret"),
        ({"config": {"worker_api_key": "sk-0123456789"}}, "expected KV_ROUTER_WORKER_API_KEY in the Secret"),
        ({"config": {"port": 9002, "epp_port": 9002}}, "config.epp_port: expected another port"),
        ({"config": {"record": "/record"}}, "config.record: /record cannot be written to"),
        (
            {
                "config": {"record": "/record/a"},
                "extraVolumeMounts": [{"name": "r", "mountPath": "/record", "readOnly": True}],
            },
            "config.record: /record/a cannot be written to",
        ),
        (
            {"config": {"protect_metrics": "on"}, "podMonitor": {"enabled": True}},
            "podMonitor.authorization: expected the Secret",
        ),
        ({"config": {"discover": "off", "workers": ["http://a:1"]}}, "networkPolicy.workers: expected"),
        ({"config": {"kubernetes_kind": "endpointslices"}}, "networkPolicy.workers: expected"),
        ({"config": {"kubernetes_selector": None}}, "networkPolicy.workers: expected"),
        ({"autoscaling": {"enabled": True}}, "autoscaling: expected config.max_worker_inflight"),
    ],
)
def test_what_could_not_run_is_refused_by_helm(values: dict[str, Any], said: str) -> None:
    with pytest.raises(HelmError) as caught:
        objects(values)
    assert said in str(caught.value)


def test_what_only_stands_for_a_key_may_be_in_the_file() -> None:
    assert container({"config": {"api_key": [f"sha256:{'0' * 64}"]}})


def test_what_is_scaled_by_moves_under_a_limit_wherever_that_is_given() -> None:
    scaled = {"autoscaling": {"enabled": True}}
    variable = {"name": "KV_ROUTER_MAX_INFLIGHT", "value": "64"}
    for values in ({"config": {"max_worker_inflight": 8}}, {"env": [variable]}):
        assert only({**scaled, **values}, "HorizontalPodAutoscaler")
    assert only({"autoscaling": {"enabled": True, "metric": "another"}}, "HorizontalPodAutoscaler")


def test_the_values_of_the_page_are_taken() -> None:
    page = (DEPLOY.parent / "docs" / "kubernetes.md").read_text()
    (text,) = re.findall(r"^```yaml\n(config:\n.*?)^```", page, re.MULTILINE | re.DOTALL)
    values = yaml.safe_load(text)
    mounts = [each["mountPath"] for each in container(values)["volumeMounts"]]
    assert {"/tls", "/keys", "/record"} <= set(mounts)
    assert only(values, "PodMonitor")


def test_the_patch_that_the_base_shows_replaces_the_labels_of_the_workers() -> None:
    shown = (BASE / "kustomization.yaml").read_text()
    (path,) = re.findall(r"path: (/spec/egress\S+),", shown)
    place: Any = yaml.safe_load((BASE / "networkpolicy.yaml").read_text())
    for step in path.split("/")[1:]:
        place = place[int(step) if isinstance(place, list) else step]
    assert place == {"matchLabels": {"app": "vllm"}}
