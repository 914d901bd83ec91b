"""Pieces from the worker's socket to the client's within one call, while the client keeps up.

Between two pieces of a stream the request's task has nothing to decide, and waking it for each costs more
than passing the piece on. So the connection calls `push` as it reads: the ASGI `send` is stepped once by
hand, which is all it takes unless the client is slow. When it is, its unfinished `send` goes back to the
task, which finishes it in its own time while the connection holds the worker back.
"""

from __future__ import annotations

import asyncio
from types import coroutine
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Generator

    from router.proxy.asgi import Send
    from router.proxy.response import Response

    Stalled = tuple[Generator[Any, Any, None], Any]  # a `send` and what it waits for


class Pump:
    """Passes an answer on up to its end, which is the task's to send; `last` keeps the latest pieces."""

    __slots__ = ("_done", "_last", "_response", "_send", "_stalled")

    _done: asyncio.Future[None]

    def __init__(self, response: Response, send: Send, last: deque[bytes]) -> None:
        self._response = response
        self._send = send
        self._last = last
        self._stalled: Stalled | None = None

    async def run(self) -> None:
        """Pass pieces on until the answer is complete or has failed; raises what `send` raises."""
        response = self._response
        loop = asyncio.get_running_loop()
        while not response.complete and response.failure is None:
            self._done = loop.create_future()
            response.attend(self.push)
            try:
                await self._done
                if self._stalled is not None:
                    await _finish(*self._stalled)
            finally:
                response.pump = None
                self._forget()

    def push(self) -> None:
        """Pass on what has come; the connection calls it after each read of the socket."""
        response = self._response
        if response.complete or response.failure is not None:
            self._end()
            return
        pieces = response.pieces
        if not pieces:
            return
        response.pieces = []
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._last.append(piece)
        sending = self._send({"type": "http.response.body", "body": piece, "more_body": True}).__await__()
        try:
            waited = next(sending)
        except StopIteration:
            pass
        except Exception as error:  # noqa: BLE001 - the task raises it
            self._end(error)
        else:
            self._stalled = sending, waited
            self._end()

    def _end(self, error: Exception | None = None) -> None:
        self._response.pump = None
        if self._done.done():
            return  # cancelled: the client has gone
        if error is not None:
            self._done.set_exception(error)
        else:
            self._done.set_result(None)

    def _forget(self) -> None:
        """Close a `send` that was cut short; one that has ended takes no notice."""
        if self._stalled is not None:
            self._stalled[0].close()
            self._stalled = None


@coroutine
def _finish(sending: Generator[Any, Any, None], waited: Any) -> Generator[Any, Any, None]:
    """Await the rest of a coroutine that has been stepped once and then yielded `waited`."""
    yield waited
    yield from sending
