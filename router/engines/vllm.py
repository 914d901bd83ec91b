"""vLLM (0.32): several routes, each of which says a part.

Facts: `/kv_event_sources` answers `{"0": {enable_kv_cache_events, publisher, endpoint, replay_endpoint,
topic, ...}, "1": ...}`, one entry per DP rank; an older vLLM answers 404, and then only the operator knows.
`/metrics` has the block size and whether prefixes are cached in the labels of
`vllm:cache_config_info` (one line per engine, that is per rank) and the process start time, absent when
several front ends share the metrics. `/is_paused` and `/is_sleeping` exist in development mode only; a paused
engine keeps `/health` at 200.

The truth about a hit: `usage.prompt_tokens_details.cached_tokens`, there only with
`--enable-prompt-tokens-details`, is a multiple of the block size and never the whole prompt, since the last
prompt token is always computed. Absent or null is "unknown", not 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.engines.answer import NOT_FOUND, OK, as_object, count, get, required, text
from router.engines.control import Action, Outcome, one_of, post
from router.engines.description import Description
from router.engines.endpoint import Endpoint
from router.engines.loads import vllm_loads
from router.engines.models import read_models
from router.engines.pinning import rank_headers
from router.engines.sources import Publisher, lay_over
from router.errors import BadRequest, UpstreamFailed
from router.fleet.spec import MOST_BLOCK_TOKENS, MOST_RANKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from router.core.word import EngineLoad
    from router.fleet.spec import WorkerSpec
    from router.proxy.fetch import Reply
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

# /pause clears the cache unless told otherwise, /sleep does, and the events of it come with the next step.
PAUSE_MAY_CLEAR = True

# A decode worker is an engine like any other (0.32, NIXL and alike): a request without kv_transfer_params
# that point somewhere has its prompt computed there.
DECODES_ALONE = True

# What the router's one API calls a pause, and what vLLM does; two are SGLang's words for keeping requests.
PAUSE_MODES: Mapping[str, str] = {
    "keep": "keep",
    "wait": "wait",
    "abort": "abort",
    "retract": "keep",
    "in_place": "keep",
}

START_WITH = (
    """start it with --kv-events-config '{"enable_kv_cache_events": true, "publisher": "zmq", """
    """"endpoint": "tcp://*:5557"}'"""
)

# Two lines out of hundreds of kilobytes: prometheus_client's parser, which is pure Python, would hold up the
# event loop for tens of milliseconds to build samples that nobody reads.
_CACHE_CONFIG = re.compile(rb"^vllm:cache_config_info\{(.*)\}", re.MULTILINE)
_START_TIME = re.compile(rb"^process_start_time_seconds (\S+)", re.MULTILINE)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class _Metrics:
    engines: int
    block_size: int | None
    prefix_caching: bool
    started: str | None


async def describe(upstream: Upstream, spec: WorkerSpec) -> Description:
    """Ask a worker who it is: four GETs.

    Raises UpstreamFailed when `/v1/models` is not a JSON object or names no model.
    """
    models = read_models(required("/v1/models", await get(upstream, "/v1/models")))
    if not models.names:
        raise UpstreamFailed("GET /v1/models names no model")
    version = as_object(await get(upstream, "/version")) or {}
    metrics = _metrics(await get(upstream, "/metrics"))
    publishers = _publishers(spec, metrics, await get(upstream, "/kv_event_sources"))
    sources, why = lay_over(spec, publishers)
    return Description(
        engine="vllm",
        model=models.names[0],
        aliases=models.names[1:],
        adapters=models.adapters,
        block_size=spec.block_size or metrics.block_size,
        dp=len(sources),
        sources=sources,
        why_no_events=why,
        bigram=False,
        role=spec.role,
        tokenizer_path=models.root,
        started=metrics.started,
        version=text(version.get("version")),
    )


async def is_paused(upstream: Upstream) -> bool | None:
    """Whether the engine is paused or asleep: one GET or two; None: it does not say (no development mode)."""
    paused = await _says(upstream, "is_paused")
    sleeping = None if paused else await _says(upstream, "is_sleeping")
    return None if paused is None and sleeping is None else bool(paused or sleeping)


async def weight_version(upstream: Upstream) -> str | None:
    """Which weights the worker has: one GET; None: it does not say (no development mode)."""
    return text((as_object(await get(upstream, "/weight_info")) or {}).get("weight_version"))


async def loads(upstream: Upstream) -> dict[int, EngineLoad]:
    """Return the load of each rank that the worker says it of: one GET, of a page that can be large."""
    reply = await get(upstream, "/metrics")
    return vllm_loads(reply.body) if reply.status == OK else {}


async def control(upstream: Upstream, action: Action, body: dict[str, Any]) -> Outcome:
    """Carry out one action, in development mode only; a pause leaves the cache to an explicit flush.

    A weight update is three POSTs. Raises BadRequest, UpstreamFailed, UpstreamTimeout.
    """
    if action == "pause":
        mode = one_of(body, "mode", PAUSE_MODES, "keep")
        return await post(upstream, f"/pause?mode={PAUSE_MODES[mode]}&clear_cache=false", None)
    if action == "continue":
        return await post(upstream, "/resume", None)
    if action == "flush":
        running = "?reset_running_requests=true" if body.get("reset_running_requests") is True else ""
        return await post(upstream, f"/reset_prefix_cache{running}", None, clears=True)
    return await _update_weights(upstream, body)


async def _update_weights(upstream: Upstream, body: dict[str, Any]) -> Outcome:
    """Open an update, send the body, close it with the version that the body names, as 0.32 takes it.

    A body without `update_info` is refused before: the engine would refuse it too, and leave the update open,
    after which no other can begin.
    """
    if not isinstance(body.get("update_info"), dict | list):
        raise BadRequest(
            "update_info: expected an object, or a list of one for each worker", param="update_info"
        )
    version = {"weight_version": body["weight_version"]} if "weight_version" in body else {}
    outcome = await post(upstream, "/start_weight_update", {})
    if outcome.ok:
        outcome = await post(upstream, "/update_weights", body)
    return await post(upstream, "/finish_weight_update", version) if outcome.ok else outcome


async def _says(upstream: Upstream, name: str) -> bool | None:
    value = (as_object(await get(upstream, f"/{name}")) or {}).get(name)
    return value if isinstance(value, bool) else None


def _metrics(reply: Reply) -> _Metrics:
    body = reply.body if reply.status == OK else b""
    configs = [_labels(found) for found in _CACHE_CONFIG.findall(body)]
    first = configs[0] if configs else {}
    started = _START_TIME.search(body)
    size = first.get("block_size", "")
    return _Metrics(
        engines=min(len({config.get("engine") for config in configs}), MOST_RANKS),
        block_size=count(int(size), MOST_BLOCK_TOKENS) if re.fullmatch(r"[0-9]{1,9}", size) else None,
        prefix_caching=first.get("enable_prefix_caching") != "False",
        started=started[1].decode(errors="replace") if started else None,
    )


def _labels(line: bytes) -> dict[str, str]:
    return dict(_LABEL.findall(line.decode(errors="replace")))


def _publishers(spec: WorkerSpec, metrics: _Metrics, reply: Reply) -> list[Publisher]:
    configs, why = _configs(reply)
    ranks = spec.dp or max(len(configs), metrics.engines, 1)
    if not metrics.prefix_caching:
        off = "prefix caching is off: start the engine with --enable-prefix-caching"
        return [Publisher(off=True, why=off)] * ranks
    # Ranks that report one address mean the base; none can share a port.
    shared = len({config.get("endpoint") for config in configs if text(config.get("endpoint"))}) == 1
    said = [_publisher(config, rank if shared else 0) for rank, config in enumerate(configs)]
    return [said[rank] if rank < len(said) else Publisher(why=why) for rank in range(ranks)]


def _configs(reply: Reply) -> tuple[list[dict[str, Any]], str]:
    """Return the ranks' entries in the order of the ranks, and why the others have none."""
    if reply.status == NOT_FOUND:
        return [], "this vLLM has no /kv_event_sources (an older release): give kv=tcp://host:port"
    answer = as_object(reply)
    if answer is None:
        return [], f"GET /kv_event_sources answered {reply.status}, not with a JSON object of ranks"
    ranks = sorted((key for key in answer if re.fullmatch(r"[0-9]{1,9}", key)), key=int)[:MOST_RANKS]
    entries = [answer[key] if isinstance(answer[key], dict) else {} for key in ranks]
    return entries, "GET /kv_event_sources does not list this rank"


def _publisher(config: dict[str, Any], rank: int) -> Publisher:
    if config.get("enable_kv_cache_events") is not True or config.get("publisher") != "zmq":
        return Publisher(off=True, why=f"the engine publishes no KV events: {START_WITH}")
    reported = text(config.get("endpoint"))
    endpoint = _address(reported, rank)
    if endpoint is None:
        why = f"the engine publishes at {reported!r:.80}, which is no address to connect to from here"
        return Publisher(why=why)
    return Publisher(
        endpoint=endpoint,
        replay=_address(config.get("replay_endpoint"), rank),
        topic=text(config.get("topic")) or "",
        binds=endpoint.engine_binds or config.get("bind") is True,
    )


def _address(value: object, rank: int) -> Endpoint | None:
    try:
        return Endpoint.parse(text(value) or "").at_rank(rank)
    except ValueError:
        return None
