"""Pieces from the worker's socket to the client's within one call, while the client keeps up.

Between two pieces of a stream nobody has anything to decide, and running a coroutine for each costs more than
passing the piece on. So the connection calls `push` as it reads, or `chunk` with what it has not parsed. When
the client is slow the coroutine waits until it has caught up, while the connection holds the worker back.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from router.proxy.drive import Waiter

if TYPE_CHECKING:
    from collections import deque

    from router.proxy.cycle import Cycle
    from router.proxy.response import Response


# What a chunk of so many bytes begins with as engines write it; any other is parsed.
_MOST_BYTES = 4096
_SIZES = {form % size: size for size in range(1, _MOST_BYTES + 1) for form in (b"%x\r\n", b"%X\r\n")}
# What a read of so many bytes begins with that is one chunk.
_HEADS = {len(b"%x\r\n\r\n" % size) + size: b"%x\r\n" % size for size in range(1, _MOST_BYTES + 1)}


class Pump:
    """Passes an answer on up to its end, which is the caller's to send; `last` keeps the latest pieces.

    `pieces` is how many it has passed on.
    """

    __slots__ = ("_cycle", "_done", "_flow", "_last", "_response", "_write", "pieces")

    _done: Waiter

    def __init__(self, response: Response, cycle: Cycle, last: deque[bytes]) -> None:
        self._response = response
        self._cycle = cycle
        self._flow = cycle.flow
        self._write = cycle.transport.write
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
            response.attend(self.push, self.chunk if self._cycle.chunked else None)
            try:
                await done
            finally:
                response.leave()

    def push(self) -> None:
        """Pass on what has come; the connection calls it after each read of the socket."""
        response = self._response
        if response.complete or response.failure is not None:
            self._stop()
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
            self._stop()

    def chunk(self, read: bytes) -> bool:
        """Pass on a read as it is and return True, if it is whole chunks and nothing else.

        Most of what an engine streams comes like that, and is to go on framed like that. Takes a third of the
        time that it takes to parse a chunk, push its piece, and frame that anew. Of a busy router's reads a
        sixth hold two or three chunks (256 streams of a chunk in 8 ms each).
        """
        head = _HEADS.get(len(read))
        if head is not None and read.startswith(head) and read.endswith(b"\r\n"):
            self._last.append(read[len(head) : -2])
            self.pieces += 1
        elif not self._are_chunks(read):
            return False
        if not self._cycle.disconnected:
            self._write(read)
        if self._flow.write_paused:
            self._stop()
        return True

    def _are_chunks(self, read: bytes) -> bool:
        """Whether a read is whole chunks from its beginning to its end; take note of what is in them."""
        pieces: list[bytes] = []
        end = 0
        while end < len(read):
            start = read.find(b"\n", end) + 1
            size = _SIZES.get(read[end:start])
            if size is None:
                return False
            end = start + size + 2
            if read[end - 2 : end] != b"\r\n":
                return False
            pieces.append(read[start : end - 2])
        self._last += pieces
        self.pieces += len(pieces)
        return True

    def _stop(self) -> None:
        self._response.leave()
        self._done.wake()
