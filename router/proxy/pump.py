"""Pieces from the worker's socket to the client's within one call, while the client keeps up.

Between two pieces of a stream nobody has anything to decide, and running a coroutine for each costs more than
passing the piece on. So the connection calls `push` as it reads. When the client is slow the coroutine waits
until it has caught up, while the connection holds the worker back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from router.proxy.drive import Waiter

if TYPE_CHECKING:
    from collections import deque

    from router.proxy.cycle import Cycle
    from router.proxy.response import Response


class Pump:
    """Passes an answer on up to its end, which is the caller's to send; `last` keeps the latest pieces.

    `pieces` is how many it has passed on.
    """

    __slots__ = ("_cycle", "_done", "_flow", "_last", "_response", "pieces")

    _done: Waiter

    def __init__(self, response: Response, cycle: Cycle, last: deque[bytes]) -> None:
        self._response = response
        self._cycle = cycle
        self._flow = cycle.flow
        self._last = last
        self.pieces = 0

    async def run(self) -> None:
        """Pass pieces on until the answer is complete or has failed."""
        response, flow = self._response, self._flow
        loop = asyncio.get_running_loop()
        while not response.complete and response.failure is None:
            if flow.write_paused:
                await flow.drain()
                continue
            self._done = done = Waiter(loop)
            response.attend(self.push)
            try:
                await done
            finally:
                response.pump = None

    def push(self) -> None:
        """Pass on what has come; the connection calls it after each read of the socket."""
        response = self._response
        if response.complete or response.failure is not None:
            response.pump = None
            self._done.wake()
            return
        pieces = response.pieces
        if not pieces:
            return
        response.pieces = []
        piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._last.append(piece)
        self.pieces += 1
        self._cycle.write(piece)
        if self._flow.write_paused:
            response.pump = None
            self._done.wake()
