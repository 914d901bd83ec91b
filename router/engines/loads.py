"""What engines say of their load: SGLang's load socket and `/v1/loads`, vLLM's gauges.

Rule of the room: a word that is not one is no word; nothing in it may become a number that is not there.

Facts. SGLang 0.5.23: a LoadStat is an array, `["LoadStat", running, waiting, num_tokens, max_total, dp_rank,
waiting_uncached, total_tokens, max_running, ...]`, after each prefill and each fifth decode step; an engine
that falls idle may send none, so that the last word must not count for long. `/v1/loads` has the same by
names, an object for each rank. vLLM 0.32: `vllm:num_requests_running`, `_waiting` and
`vllm:kv_cache_usage_perc`, from 0 to 1, with the label `engine` for the rank; of tokens it says nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

from router.core.word import EngineLoad
from router.fleet.spec import MOST_RANKS

if TYPE_CHECKING:
    from collections.abc import Iterator

_MOST = 10**12
_decode = msgspec.msgpack.Decoder(list[Any]).decode
# Fields of a LoadStat up to the last one that is used.
_FIELDS = 7
_ENGINE = re.compile(rb'[{,]engine="([0-9]{1,4})"')
_NAMES = ("dp_rank", "num_running_reqs", "num_waiting_reqs")
_MORE_NAMES = ("num_waiting_uncached_tokens", "max_total_num_tokens")
_GAUGES = (b"num_requests_running", b"num_requests_waiting", b"kv_cache_usage_perc")


def load_stat(payload: bytes) -> tuple[int, EngineLoad] | None:
    """Return rank and load of a LoadStat, None for anything else. About 1 us."""
    try:
        fields = _decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return None
    if len(fields) < _FIELDS or fields[0] != "LoadStat":
        return None
    running, waiting, used, capacity, rank, uncached = map(_count, fields[1:_FIELDS])
    if running is None or waiting is None or rank is None:
        return None
    usage = min(1.0, used / capacity) if used and capacity else 0.0
    return rank, EngineLoad(running, waiting, uncached or 0, usage, capacity or 0)


def sglang_loads(answer: dict[str, Any] | None) -> dict[int, EngineLoad]:
    """Return the loads in the answer of `/v1/loads`, by rank."""
    listed = (answer or {}).get("loads")
    found = {}
    for said in listed[:MOST_RANKS] if isinstance(listed, list) else ():
        if not isinstance(said, dict):
            continue
        rank, running, waiting = (_count(said.get(name)) for name in _NAMES)
        if rank is None or running is None or waiting is None:
            continue
        tokens, capacity = (_count(said.get(name)) or 0 for name in _MORE_NAMES)
        found[rank] = EngineLoad(running, waiting, tokens, _share(said.get("token_usage")), capacity)
    return found


def vllm_loads(metrics: bytes) -> dict[int, EngineLoad]:
    """Return the loads in the text of `/metrics`, by rank. About 60 us for each 100 KiB of it."""
    running, waiting, usage = (dict(_gauge(metrics, name)) for name in _GAUGES)
    return {
        rank: EngineLoad(int(number), int(waiting.get(rank, 0.0)), usage=min(1.0, usage.get(rank, 0.0)))
        for rank, number in running.items()
    }


def _gauge(metrics: bytes, name: bytes) -> Iterator[tuple[int, float]]:
    """Yield a gauge's values by rank. Found as bytes: to parse the page would hold up the loop."""
    start = b"\nvllm:" + name
    at = metrics.find(start)
    while at >= 0:
        end = metrics.find(b"\n", at + 1)
        line = metrics[at + len(start) : end if end >= 0 else len(metrics)]
        engine, _, value = line.rpartition(b" ")
        rank = _ENGINE.search(engine)
        number = _number(value)
        if engine[:1] == b"{" and rank is not None and number is not None:
            yield int(rank[1]), number
        at = metrics.find(start, at + 1)


def _number(text: bytes) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0.0 <= value <= _MOST else None


def _count(value: object) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST:
        return value
    return None


def _share(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0:
        return float(min(1, value))
    return 0.0
