"""From what a worker says of its publishers, and what the operator set, to one event source per rank.

Rule of the room: the operator's settings win; an address is what the router can use from where it stands;
where there is no source, or where it will stay silent as far as can be told, the reason is in words.

Facts (KV_EVENTS 1, 7, 8): port of rank r = base + r; a wildcard host is the host of the worker's URL; an
engine whose address holds no wildcard connects, and a publisher and a subscriber that both connect never
meet. (vLLM 0.32 given port 0 binds its own address and then reports that one: it looks like an address to
connect to, so such a source is still tried.) The replay socket is always bound by the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.engines.description import EventSource
from router.engines.endpoint import address_of, is_loopback

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.engines.endpoint import Endpoint
    from router.fleet.spec import WorkerSpec


@dataclass(frozen=True, slots=True)
class Publisher:
    """What a worker says of one rank's publisher, the rank's own ports already worked out.

    `why` says why there is no endpoint, or what speaks against events from it. `off`: the worker itself says
    that it publishes nothing, which is worth knowing even when the operator gave an address.
    """

    endpoint: Endpoint | None = None
    replay: Endpoint | None = None
    topic: str = ""
    binds: bool = False
    off: bool = False
    why: str = ""


def lay_over(spec: WorkerSpec, publishers: Sequence[Publisher]) -> tuple[tuple[EventSource | None, ...], str]:
    """Return one source (or None) per publisher, and why some have none or may stay silent."""
    ranks = [_rank(spec, rank, said) for rank, said in enumerate(publishers)]
    reasons = dict.fromkeys(why for _, why in ranks if why)
    return tuple(source for source, _ in ranks), "; ".join(reasons)


def _rank(spec: WorkerSpec, rank: int, said: Publisher) -> tuple[EventSource | None, str]:
    endpoint, why = _given(spec, spec.kv, rank, said) if spec.kv is not None else _reported(spec, said)
    if endpoint is None:
        return None, why
    replay = _replay(spec, rank, said)
    topic = said.topic if spec.topic is None else spec.topic
    source = EventSource(
        endpoint=str(endpoint), replay=str(replay) if replay else None, topic=topic, bind=spec.bind
    )
    return source, why


def _given(spec: WorkerSpec, kv: str, rank: int, said: Publisher) -> tuple[Endpoint | None, str]:
    endpoint = address_of(kv, rank)
    if endpoint is None:
        return None, f"kv={kv} has no address for rank {rank}"
    return (endpoint if spec.bind else endpoint.with_host(spec.host)), said.why if said.off else ""


def _reported(spec: WorkerSpec, said: Publisher) -> tuple[Endpoint | None, str]:
    endpoint = said.endpoint
    if endpoint is None:
        return None, said.why
    if spec.bind:
        return endpoint.to_bind(), f"the engine binds {endpoint} itself: drop bind=true" if said.binds else ""
    if not reachable(endpoint, spec):
        return None, f"the engine publishes to {endpoint}, which is its own machine only: use tcp://*:port"
    why = said.why if said.binds else _connects(endpoint)
    return endpoint.with_host(spec.host), why


def _replay(spec: WorkerSpec, rank: int, said: Publisher) -> Endpoint | None:
    if spec.replay is not None:
        given = address_of(spec.replay, rank)
        return given and given.with_host(spec.host)
    if said.replay is None or not reachable(said.replay, spec):
        return None
    return said.replay.with_host(spec.host)


def reachable(endpoint: Endpoint, spec: WorkerSpec) -> bool:
    """Whether an address that a worker names can be its own, seen from here; else it could be another's."""
    return not is_loopback(endpoint.host) or is_loopback(spec.host)


def _connects(endpoint: Endpoint) -> str:
    return (
        f"the engine's publisher connects to {endpoint}, where a router that connects too gets nothing: "
        f"start the engine with tcp://*:{endpoint.port}, or give bind=true"
    )
