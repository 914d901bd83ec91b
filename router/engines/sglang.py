"""SGLang (0.5.23): `/server_info` says almost everything.

Facts: `kv_events` in `/server_info` is null when nothing can be subscribed to (`--kv-events-config` is not
given, or its publisher is "null", which `{}` means too, or its endpoint is not tcp); older releases have no
such key, and `/get_server_info`, `/get_model_info` as names. `block_size` is that of the events (page_size x
dcp_size), so page_size is never used. EAGLE*, MTP and NEXTN publish token pairs. `/ready` is 503 from the
moment of a pause to its end, where `/health` stays 200. A decode worker of a prefill/decode pair publishes
nothing unless its decode radix cache is on.

The truth about a hit: `usage.prompt_tokens_details.cached_tokens` counts the prompt tokens not computed
again, from any tier, and is there only with `--enable-cache-report`; the native `/generate` always has
`meta_info.cached_tokens`. Absent is "unknown", not 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.engines.answer import NOT_FOUND, OK, UNAVAILABLE, as_object, count, get, required, text
from router.engines.control import Action, Outcome, one_of, post
from router.engines.description import Description, EventSource
from router.engines.endpoint import MOST_PORT, Endpoint
from router.engines.loads import sglang_loads
from router.engines.models import Models, read_models
from router.engines.pinning import rank_headers
from router.engines.sources import Publisher, lay_over, reachable
from router.errors import UpstreamFailed
from router.fleet.spec import MOST_BLOCK_TOKENS, MOST_RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.core.word import EngineLoad
    from router.fleet.spec import Role, WorkerSpec
    from router.proxy.upstream import Upstream

__all__ = [
    "DECODES_ALONE",
    "PAUSE_MAY_CLEAR",
    "PAUSE_MODES",
    "control",
    "describe",
    "is_paused",
    "loads",
    "rank_headers",
    "weight_version",
]

# A pause keeps the cache; only AllBlocksCleared and a restart empty it.
PAUSE_MAY_CLEAR = False

# The loop of a decode worker (--disaggregation-mode decode, 0.5.23) has no prefill batch: a request without a
# bootstrap room is refused, one whose prompt nobody sends fails.
DECODES_ALONE = False
# Where a prefill worker's bootstrap server listens unless --disaggregation-bootstrap-port says otherwise.
BOOTSTRAP_PORT = 8998

SERVER_INFO = ("/server_info", "/get_server_info")
MODEL_INFO = ("/model_info", "/get_model_info")
PATHS = ("model_path", "tokenizer_path")
# What the router's one API calls a pause, and what SGLang does: `keep` is vLLM's word for the same.
PAUSE_MODES: Mapping[str, str] = {
    "retract": "retract",
    "in_place": "in_place",
    "abort": "abort",
    "keep": "retract",
}
_UPDATES = {via: f"/update_weights_from_{via}" for via in ("disk", "tensor", "distributed", "ipc")}

START_WITH = """start it with --kv-events-config '{"publisher": "zmq", "endpoint": "tcp://*:5557"}'"""


async def describe(upstream: Upstream, spec: WorkerSpec) -> Description:
    """Ask a worker who it is: two or three GETs.

    Raises UpstreamFailed when `/server_info` is not a JSON object or when no model is named.
    """
    info = required(SERVER_INFO[0], await get(upstream, *SERVER_INFO))
    if missing := [name for name in PATHS if not text(info.get(name))]:
        more = as_object(await get(upstream, *MODEL_INFO)) or {}
        info |= {name: more.get(name) for name in missing}
    models = read_models(as_object(await get(upstream, "/v1/models")))
    return _description(spec, info, models)


async def is_paused(upstream: Upstream) -> bool | None:
    """Whether the scheduler is paused: one GET; None: this release does not say."""
    status = (await get(upstream, "/ready")).status
    return {OK: False, UNAVAILABLE: True, NOT_FOUND: None}.get(status)


async def weight_version(upstream: Upstream) -> str | None:
    """Which weights the worker has; None: it does not say."""
    return text((as_object(await get(upstream, *MODEL_INFO)) or {}).get("weight_version"))


async def loads(upstream: Upstream) -> dict[int, EngineLoad]:
    """Return the load of each rank that the worker says it of: one GET; older releases say nothing."""
    return sglang_loads(as_object(await get(upstream, "/v1/loads")))


async def control(upstream: Upstream, action: Action, body: dict[str, Any]) -> Outcome:
    """Carry out one action: one POST.

    `update_weights` passes the body on, by disk unless `via` names another way. A flush that is refused is
    a 400, also as part of an update: the weights have then changed all the same, and the cache is still
    there. Raises BadRequest, UpstreamFailed, UpstreamTimeout.
    """
    if action == "pause":
        mode = one_of(body, "mode", PAUSE_MODES, "retract")
        return await post(upstream, "/pause_generation", {"mode": PAUSE_MODES[mode]})
    if action == "continue":
        return await post(upstream, "/continue_generation", {})
    if action == "flush":
        return await post(upstream, "/flush_cache", {}, clears=True)
    via = one_of(body, "via", _UPDATES, "disk")
    passed = {name: value for name, value in body.items() if name != "via"}
    return await post(upstream, _UPDATES[via], passed, clears=body.get("flush_cache", True) is True)


def _description(spec: WorkerSpec, info: dict[str, Any], models: Models) -> Description:
    events = info.get("kv_events")
    events = events if isinstance(events, dict) else {}
    dp = spec.dp or count(events.get("dp_size"), MOST_RANKS) or count(info.get("dp_size"), MOST_RANKS) or 1
    role = _role(spec, info)
    sources, why = lay_over(spec, [_publisher(info, rank, role) for rank in range(dp)])
    names = _names(info, models)
    return Description(
        engine="sglang",
        model=names[0],
        aliases=names[1:],
        adapters=models.adapters,
        block_size=spec.block_size or count(events.get("block_size"), MOST_BLOCK_TOKENS),
        dp=dp,
        sources=sources,
        why_no_events=why,
        bigram=_bigram(info),
        role=role,
        tokenizer_path=text(info.get("tokenizer_path")) or text(info.get("model_path")) or models.root,
        started=_started(info),
        version=text(info.get("version")),
        bootstrap_port=count(info.get("disaggregation_bootstrap_port"), MOST_PORT) or BOOTSTRAP_PORT,
        loads=_load_sources(spec, events, dp),
    )


def _names(info: dict[str, Any], models: Models) -> tuple[str, ...]:
    served = text(info.get("served_model_name"))
    names = tuple(dict.fromkeys((served, *models.names))) if served else models.names
    if names:
        return names
    if path := text(info.get("model_path")):
        return (path,)
    raise UpstreamFailed("the worker names no model in /server_info, /model_info or /v1/models")


def _publisher(info: dict[str, Any], rank: int, role: Role) -> Publisher:
    events = info.get("kv_events")
    if isinstance(events, dict):
        return _published(events, rank, role)
    if events is not None:
        return Publisher(why=f"/server_info has a kv_events that is {type(events).__name__}, not an object")
    if "kv_events" in info:
        return Publisher(off=True, why=f"the engine publishes no KV events: {START_WITH}")
    return Publisher(why="/server_info has no kv_events (an older SGLang): give kv=tcp://host:port")


def _published(events: dict[str, Any], rank: int, role: Role) -> Publisher:
    if events.get("publisher") != "zmq":
        why = f"the engine's KV event publisher is {events.get('publisher')!r:.40}, not 'zmq': {START_WITH}"
        return Publisher(off=True, why=why)
    endpoint = _address(text(events.get("endpoint_host")) or "*", events.get("endpoint_port_base"), rank)
    if count(events.get("dp_size", 1), MOST_RANKS) is None:
        return Publisher(why=f"kv_events in /server_info has a dp_size of {events['dp_size']!r:.40}")
    if endpoint is None:
        return Publisher(why=f"kv_events in /server_info has no usable address for rank {rank}")
    return Publisher(
        endpoint=endpoint,
        # The replay socket is bound by the engine, so its host is the one we reach the worker at.
        replay=_address("*", events.get("replay_endpoint_port_base"), rank),
        topic=text(events.get("topic")) or "",
        binds=endpoint.engine_binds,
        why="a decode worker publishes only with its decode radix cache on" if role == "decode" else "",
    )


def _load_sources(spec: WorkerSpec, events: dict[str, Any], dp: int) -> tuple[EventSource | None, ...]:
    """Return where ranks publish their load, as far as that can be reached from here."""
    host = text(events.get("endpoint_host")) or "*"
    topic = text(events.get("load_topic")) or ""
    found = [_address(host, events.get("load_endpoint_port_base"), rank) for rank in range(dp)]
    if not any(endpoint is not None and reachable(endpoint, spec) for endpoint in found):
        return ()
    return tuple(
        None if endpoint is None else EventSource(str(endpoint.with_host(spec.host)), None, topic, bind=False)
        for endpoint in found
    )


def _address(host: str, base: object, rank: int) -> Endpoint | None:
    port = count(base, MOST_PORT)
    if port is None:
        return None
    try:
        return Endpoint.tcp(host, port).at_rank(rank)
    except ValueError:
        return None


def _bigram(info: dict[str, Any]) -> bool:
    algorithm = (text(info.get("speculative_algorithm")) or "").upper()
    return algorithm.startswith("EAGLE") or algorithm in {"MTP", "NEXTN"}


def _role(spec: WorkerSpec, info: dict[str, Any]) -> Role:
    if spec.role != "both":
        return spec.role
    mode = info.get("disaggregation_mode")
    return "prefill" if mode == "prefill" else "decode" if mode == "decode" else "both"


def _started(info: dict[str, Any]) -> str | None:
    value = info.get("startup_time")
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
