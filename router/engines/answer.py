"""A worker's answers, read without trust.

Rule of the room: an answer may be anything at all. A value of another type than expected counts as not
given; only an answer that makes the worker unusable is UpstreamFailed, with the path and what came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from router.errors import UpstreamFailed
from router.proxy.fetch import fetch

if TYPE_CHECKING:
    from router.proxy.fetch import Reply
    from router.proxy.upstream import Upstream

# For one small GET. Engines answer these from their front end within milliseconds, but a busy one may stall.
TIMEOUT_SECONDS = 5.0
OK, NOT_FOUND, UNAVAILABLE = 200, 404, 503


async def get(upstream: Upstream, *paths: str) -> Reply:
    """GET the first of `paths` that the worker knows, the last one if it knows none (then a 404).

    Raises UpstreamFailed or UpstreamTimeout when no answer comes.
    """
    for path in paths[:-1]:
        reply = await fetch(upstream, "GET", path, timeout=TIMEOUT_SECONDS)
        if reply.status != NOT_FOUND:
            return reply
    return await fetch(upstream, "GET", paths[-1], timeout=TIMEOUT_SECONDS)


def as_object(reply: Reply) -> dict[str, Any] | None:
    """Return the JSON object of a 200; None for any other status and any other body."""
    if reply.status != OK:
        return None
    try:
        value = msgspec.json.decode(reply.body)
    except (msgspec.DecodeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def required(path: str, reply: Reply) -> dict[str, Any]:
    """Return the JSON object of a 200; raise UpstreamFailed for anything else."""
    value = as_object(reply)
    if value is None:
        wrong = f"answered {reply.status}" if reply.status != OK else "did not answer with a JSON object"
        raise UpstreamFailed(f"GET {path} {wrong}")
    return value


def text(value: object) -> str | None:
    """Return `value` if it is text and not empty."""
    return value if isinstance(value, str) and value else None


def count(value: object, most: int) -> int | None:
    """Return `value` if it is a whole number from 1 to `most`; true is not one."""
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most:
        return value
    return None
