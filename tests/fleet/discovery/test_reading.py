"""What pods and EndpointSlices say of workers."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from router.errors import ConfigError
from router.fleet.discovery.kubernetes.objects import EndpointSlice, Pod
from router.fleet.discovery.kubernetes.reading import of_pod, of_slice
from router.fleet.discovery.kubernetes.settings import Seek, api_of, own_namespace
from router.fleet.discovery.wanted import Wanted
from router.fleet.spec import WorkerSpec
from tests.fleet.discovery.api_server import endpoint, endpoint_slice, pod

PODS = Seek()


def of(found: dict[str, Any], seek: Seek = PODS) -> list[Wanted]:
    if "endpoints" in found:
        return list(of_slice(msgspec.convert(found, EndpointSlice), seek))
    return list(of_pod(msgspec.convert(found, Pod), seek))


def refusal(found: dict[str, Any], seek: Seek = PODS) -> str:
    with pytest.raises(ConfigError) as caught:
        of(found, seek)
    return caught.value.message


def test_a_pod_is_a_worker_at_its_address_and_first_port_known_by_its_uid() -> None:
    (wanted,) = of(pod("u1", "10.0.0.1", 30000))
    assert wanted == Wanted(WorkerSpec("http://10.0.0.1:30000"), "u1", "", ("10.0.0.1",), "pod ns/pod-u1")


@pytest.mark.parametrize(
    ("seek", "annotations", "url"),
    [
        (Seek(port="9000"), None, "http://10.0.0.1:9000"),
        (Seek(port="metrics"), None, "http://10.0.0.1:9090"),
        (Seek(port="metrics"), {"kv-router/port": "7"}, "http://10.0.0.1:7"),
        (Seek(port="metrics"), {"kv-router/port": "http"}, "http://10.0.0.1:8000"),
        (Seek(), {"kv-router/scheme": "https", "other/port": "x"}, "https://10.0.0.1:8000"),
    ],
)
def test_its_port_is_a_number_or_a_name_by_setting_or_annotation(
    seek: Seek, annotations: dict[str, str] | None, url: str
) -> None:
    (wanted,) = of(pod("u1", "10.0.0.1", annotations=annotations), seek)
    assert wanted.spec.url == url


def test_role_model_and_ports_of_events_come_from_labels_settings_and_annotations() -> None:
    seek = Seek(kv_port=5557, replay_port=5657, role_label="llm/role", model_label="model")
    labels = {"llm/role": "prefill", "model": "llama"}
    (wanted,) = of(pod("u1", "fd00::1", labels=labels), seek)
    assert wanted.spec == WorkerSpec(
        "http://[fd00::1]:8000",
        kv="tcp://[fd00::1]:5557",
        replay="tcp://[fd00::1]:5657",
        role="prefill",
        model="llama",
    )
    said = {"kv-port": "6000", "dp": "4", "engine": "vllm", "block-size": "32", "topic": "t", "model": "a/b"}
    annotations = {f"kv-router/{name}": text for name, text in said.items()}
    (wanted,) = of(pod("u1", "10.0.0.1", labels=labels, annotations=annotations), seek)
    assert wanted.spec == WorkerSpec(
        "http://10.0.0.1:8000",
        kv="tcp://10.0.0.1:6000",
        replay="tcp://10.0.0.1:5657",
        role="prefill",
        model="a/b",
        dp=4,
        engine="vllm",
        block_size=32,
        topic="t",
    )


def test_a_pod_that_is_not_ready_is_kept_away_from() -> None:
    (wanted,) = of(pod("u1", ready=False))
    assert wanted.away
    bare = pod("u1")
    bare["status"]["conditions"] = None
    assert of(bare)[0].away


@pytest.mark.parametrize(
    "found", [pod("u", ip=""), pod("u", deleted=True), pod("u", phase="Failed"), pod("u", phase="Succeeded")]
)
def test_a_pod_without_an_address_or_on_its_way_out_is_no_worker(found: dict[str, Any]) -> None:
    assert of(found) == []


@pytest.mark.parametrize(
    ("found", "seek", "expected"),
    [
        (pod("u"), Seek(port="grpc"), "ns/pod-u: expected a port named 'grpc', found http, metrics"),
        (
            pod("u", annotations={"kv-router/kv": "tcp://elsewhere:1"}),
            PODS,
            "ns/pod-u: annotation kv-router/kv: expected one of port, kv-port",
        ),
        (
            pod("u", labels={"r": "encode"}),
            Seek(role_label="r"),
            "ns/pod-u: worker 'http://127.0.0.1:8000': role: expected one of both, prefill, decode",
        ),
        (
            pod("u", annotations={"kv-router/port": "99999"}),
            PODS,
            "ns/pod-u: worker 'http://127.0.0.1:99999': url: expected",
        ),
        (
            pod("u", annotations={"kv-router/kv-port": "1|tcp://evil:2"}),
            PODS,
            "ns/pod-u: annotation kv-router/kv-port: expected a port",
        ),
        (
            pod("u", annotations={"kv-router/scheme": "https://evil:1/x"}),
            PODS,
            "ns/pod-u: annotation kv-router/scheme: expected http or https",
        ),
        (
            endpoint_slice("s", 1, endpoint("u", "model.example.com")),
            Seek(kind="endpointslices"),
            "ns/s: expected an IP address, got 'model.example.com'",
        ),
        (pod("u", "10.0.0.999"), PODS, "ns/pod-u: expected an IP address, got '10.0.0.999'"),
        (pod("u", "10.0.0.0/8"), PODS, "ns/pod-u: expected an IP address, got '10.0.0.0/8'"),
    ],
)
def test_what_is_wrong_names_the_object(found: dict[str, Any], seek: Seek, expected: str) -> None:
    assert refusal(found, seek).startswith(expected)


def test_endpoints_of_a_slice_are_workers_known_by_their_pods() -> None:
    found = endpoint_slice(
        "s",
        30000,
        endpoint("u1", "10.0.0.1"),
        endpoint("u2", "10.0.0.2", ready=False),
        endpoint("u3", "10.0.0.3", terminating=True),
        endpoint("u4", "10.0.0.4", ready=None),
        {"addresses": ["10.0.0.5"]},
        labels={"role": "decode"},
    )
    seen = of(found, Seek(kind="endpointslices", role_label="role"))
    assert [(each.spec.url, each.process, bool(each.away)) for each in seen] == [
        ("http://10.0.0.1:30000", "u1", False),
        ("http://10.0.0.2:30000", "u2", True),
        ("http://10.0.0.4:30000", "u4", False),
        ("http://10.0.0.5:30000", "", False),
    ]
    assert {each.spec.role for each in seen} == {"decode"}
    assert [each.name for each in seen] == ["pod ns/pod-u1", "pod ns/pod-u2", "pod ns/pod-u4", ""]


def test_the_api_server_is_the_clusters_own_in_a_pod_and_has_to_be_named_elsewhere() -> None:
    inside = api_of(None, None, None, {"KUBERNETES_SERVICE_HOST": "fd00::1"})
    assert inside.url == "https://[fd00::1]:443"
    assert (inside.token or "").endswith("serviceaccount/token")
    assert (inside.ca or "").endswith("serviceaccount/ca.crt")
    named = api_of("http://127.0.0.1:8001", None, None, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    assert (named.url, named.token, named.ca) == ("http://127.0.0.1:8001", None, None)
    with pytest.raises(ConfigError, match="expected http://host:port"):
        api_of("http://[nonsense", None, None, {})
    with pytest.raises(ConfigError, match="expected --kubernetes-api URL"):
        api_of(None, None, None, {})


def test_the_namespace_is_the_pods_own_and_has_to_be_named_elsewhere(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="expected --kubernetes-namespace"):
        own_namespace(str(tmp_path))
    (tmp_path / "namespace").write_text("inference\n")
    assert own_namespace(str(tmp_path)) == "inference"
