"""Noticing at once that a client has gone, and ending whatever is done for it.

ASGI tells of it through `receive()`, which somebody has to await while the request is served; a callback left
with the request's `Cycle` does the same for a sixth of the cost. The request is interrupted whatever it waits
for at that moment: the worker, a tokenizer, the client's socket.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from types import TracebackType

    from router.proxy.cycle import Cycle


class ClientGone(Exception):
    """The client closed its connection before it had its whole answer."""


class ClientWatch:
    """Serve one request with its client watched.

        with ClientWatch(cycle):
            ...            # raises ClientGone from here when the client goes

    Enter it after the request's body has been read and leave it with the answer sent. The block is
    interrupted within one turn of the loop after the server notices; a cancellation from elsewhere passes
    through unchanged.
    """

    __slots__ = ("_cycle", "_gone")

    def __init__(self, cycle: Cycle) -> None:
        self._cycle = cycle
        self._gone = False

    def __enter__(self) -> Self:
        cycle = self._cycle
        if cycle.disconnected:
            raise ClientGone
        cycle.on_lost = self._leave
        # The edge stops reading behind a long body until `receive` is called, and would not see the end.
        cycle.flow.resume_reading()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cycle.on_lost = None
        task = self._cycle.drive.task
        if self._gone and task is not None:
            others = task.uncancel()
            if kind is asyncio.CancelledError and not others:
                raise ClientGone from error

    def _leave(self) -> None:
        self._gone = True
        self._cycle.drive.interrupt(ClientGone())
