"""From pods and EndpointSlices to workers.

A worker is where its pod's address and port are. What else a --worker flag could say of it stands in labels
and in annotations that begin with kv-router/: port, scheme, kv-port, replay-port, and role, model, engine,
topic, block-size, dp. They name ports, never hosts: who may label a pod must not point the router
elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from typing import TYPE_CHECKING

from router.errors import ConfigError
from router.fleet.discovery.kubernetes.objects import Target
from router.fleet.discovery.wanted import Wanted
from router.fleet.spec import from_mapping

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from router.fleet.discovery.kubernetes.objects import EndpointSlice, Meta, Pod
    from router.fleet.discovery.kubernetes.settings import Seek

PREFIX = "kv-router/"
_PORTS = ("port", "kv-port", "replay-port")
_PASSED = ("role", "model", "engine", "topic", "block-size", "dp")
_KNOWN = (*_PORTS, "scheme", *_PASSED)
_NOT_READY = "Kubernetes says that it is not ready"
_OVER = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True)
class _Process:
    """What is at an address: a pod, mostly."""

    uid: str
    name: str
    addresses: tuple[str, ...]
    ready: bool


def of_pod(pod: Pod, seek: Seek) -> Iterator[Wanted]:
    """Yield the worker of a pod, if it has an address and is not on its way out. Raises ConfigError."""
    status = pod.status
    if not status.ip or pod.metadata.deletion_timestamp is not None or status.phase in _OVER:
        return
    declared = [
        (port.name, port.container_port)
        for container in pod.spec.containers or ()
        for port in container.ports or ()
    ]
    ready = any(each.type == "Ready" and each.status == "True" for each in status.conditions or ())
    addresses = tuple(dict.fromkeys((status.ip, *(each.ip for each in status.ips or ()))))
    name = f"pod {pod.metadata.namespace}/{pod.metadata.name}"
    yield _worker(pod.metadata, declared, seek, _Process(pod.metadata.uid, name, addresses, ready=ready))


def of_slice(found: EndpointSlice, seek: Seek) -> Iterator[Wanted]:
    """Yield the workers of a slice that are not on their way out. Raises ConfigError."""
    declared = [(port.name or "", port.port) for port in found.ports or () if port.port is not None]
    for endpoint in found.endpoints or ():
        conditions = endpoint.conditions
        if not endpoint.addresses or (conditions is not None and conditions.terminating):
            continue
        ready = conditions is None or conditions.ready is not False
        target = endpoint.target_ref or Target()
        name = f"pod {found.metadata.namespace}/{target.name}" if target.name else ""
        process = _Process(target.uid, name, tuple(endpoint.addresses), ready=ready)
        yield _worker(found.metadata, declared, seek, process)


def _worker(meta: Meta, declared: list[tuple[str, int]], seek: Seek, process: _Process) -> Wanted:
    """Return one worker. Raises ConfigError naming the object and what is wrong with it."""
    try:
        _check_addresses(process.addresses)
        said = _annotations(meta.annotations or {})
        settings = _settings(said, meta.labels or {}, declared, seek, process.addresses[0])
        spec = from_mapping(settings)
    except ConfigError as error:
        raise ConfigError(f"{meta.namespace}/{meta.name}: {error.message}") from None
    away = "" if process.ready else _NOT_READY
    return Wanted(spec, process.uid, away, process.addresses, process.name)


def _check_addresses(addresses: Iterable[str]) -> None:
    """Raise ConfigError for a name, which is what slices of addressType FQDN have: it can be anywhere."""
    for address in addresses:
        try:
            ip_address(address)
        except ValueError:
            raise ConfigError(f"expected an IP address, got {address!r:.80}") from None


def _annotations(given: Mapping[str, str]) -> dict[str, str]:
    said = {name.removeprefix(PREFIX): text for name, text in given.items() if name.startswith(PREFIX)}
    for name in said:
        if name not in _KNOWN:
            raise ConfigError(f"annotation {PREFIX}{name}: expected one of {', '.join(_KNOWN)}")
    for name in ("kv-port", "replay-port"):
        if not said.get(name, "1").isdecimal():
            raise ConfigError(f"annotation {PREFIX}{name}: expected a port, got {said[name]!r:.60}")
    if said.get("scheme", "http") not in {"http", "https"}:
        raise ConfigError(f"annotation {PREFIX}scheme: expected http or https, got {said['scheme']!r:.60}")
    return said


def _settings(
    said: Mapping[str, str],
    labels: Mapping[str, str],
    declared: list[tuple[str, int]],
    seek: Seek,
    address: str,
) -> dict[object, object]:
    host = f"[{address}]" if ":" in address else address
    port = _port(said.get("port") or seek.port, declared)
    settings: dict[object, object] = {"url": f"{said.get('scheme', 'http')}://{host}:{port}"}
    for name, label in (("role", seek.role_label), ("model", seek.model_label)):
        if label is not None and label in labels:
            settings[name] = labels[label]
    for name, default in (("kv", seek.kv_port), ("replay", seek.replay_port)):
        number = said.get(f"{name}-port") or default
        if number:
            settings[name] = f"tcp://{host}:{number}"
    settings.update((name, said[name]) for name in _PASSED if name in said)
    return settings


def _port(asked: str | None, declared: list[tuple[str, int]]) -> str | int:
    """Return the port of a number or name, or the first that is declared. Raises ConfigError."""
    if asked is None and declared:
        return declared[0][1]
    if asked is not None and asked.isascii() and asked.isdigit():
        return asked
    for name, number in declared:
        if name == asked:
            return number
    raise ConfigError(f"expected a port named {asked!r}, found {_shown(name for name, _ in declared)}")


def _shown(names: Iterable[str]) -> str:
    return ", ".join(filter(None, names)) or "none with a name"
