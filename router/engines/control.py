"""Control calls to a worker: what there is to do, and what came of it. Each engine's file knows how."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from router.engines.answer import NOT_FOUND, OK
from router.errors import BadRequest
from router.proxy.fetch import fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.proxy.upstream import Upstream

Action = Literal["pause", "continue", "flush", "update_weights"]
ACTIONS: tuple[Action, ...] = get_args(Action)

# In seconds. New weights of a large model come from a shared disk within minutes, and a pause that waits for
# running requests takes as long as they do; the rest is done at once or not at all.
_UPDATE_SECONDS, _PAUSE_SECONDS, _SHORT_SECONDS = 1800.0, 600.0, 60.0


class Outcome(msgspec.Struct, frozen=True):
    """What a worker answered. `cleared`: its cache is empty now, whatever its events say and when."""

    ok: bool
    status: int
    answer: Any
    cleared: bool


async def post(
    upstream: Upstream, path: str, body: dict[str, Any] | None, *, clears: bool = False
) -> Outcome:
    """POST once; a 200 whose `success` is false has failed. Raises UpstreamFailed, UpstreamTimeout."""
    reply = await fetch(upstream, "POST", path, json=body, timeout=_limit(path))
    answer = _read(reply.body)
    ok = reply.status == OK and not (isinstance(answer, dict) and answer.get("success") is False)
    if reply.status == NOT_FOUND:
        answer = f"the worker has no {path.partition('?')[0]} (vLLM: VLLM_SERVER_DEV_MODE=1)"
    return Outcome(ok, reply.status, answer, cleared=ok and clears)


def _limit(path: str) -> float:
    if "weights" in path:
        return _UPDATE_SECONDS
    return _PAUSE_SECONDS if path.startswith("/pause") else _SHORT_SECONDS


def one_of(body: dict[str, Any], field: str, known: Iterable[str], default: str) -> str:
    """Return a field's value out of those known. Raises BadRequest."""
    value = body.get(field, default)
    names = list(known)
    if value not in names:
        raise BadRequest(f"{field}: expected one of {', '.join(names)}, got {value!r:.60}", param=field)
    return str(value)


def _read(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return body[:1000].decode(errors="replace")
