"""What a process asks its parent for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.errors import RouterError
from router.share.line import CallFailed, LineClosed

if TYPE_CHECKING:
    import msgspec

    from router.share.line import Line

# What a call may take on top, over the parent.
_SLACK_SECONDS = 5.0


async def ask(line: Line, what: str, body: Any, seconds: float) -> msgspec.Raw:
    """Return the answer. Raises RouterError when there is none."""
    try:
        return await line.ask(what, body, seconds=seconds + _SLACK_SECONDS)
    except (LineClosed, CallFailed, TimeoutError) as error:
        raise RouterError("the other processes of the router could not be told") from error
