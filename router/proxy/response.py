"""One answer on its way in: the connection fills it, one reader empties it.

The connection appends to `pieces` and sets `begun` (head complete), `complete` or `failure`; it counts in
`bare_bytes` what has come in a row that is no body. The reader takes everything that has come in one piece
and waits on a single `Waiter` only when nothing has.
An answer leaves its connection the moment it is complete or has failed, so the connection can serve
another request while the last pieces here are still unread.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import UpstreamFailed
from router.proxy.drive import Waiter

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from router.proxy.connection import Connection
    from router.proxy.patience import Patience


class Response:
    """Status, headers (names in lower case, in the order received) and a body read piece by piece.

    One reader at a time. `complete` says that the last piece is here: handed out or buffered.
    """

    __slots__ = (
        "_connection",
        "_loop",
        "bare_bytes",
        "begun",
        "bodyless",
        "chunk",
        "complete",
        "failure",
        "headers",
        "patience",
        "pieces",
        "pump",
        "status",
        "waiter",
    )

    def __init__(self, connection: Connection, loop: asyncio.AbstractEventLoop, *, bodyless: bool) -> None:
        self._connection = connection
        self._loop = loop
        self.bodyless = bodyless
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.bare_bytes = 0
        self.begun = False
        self.complete = False
        self.failure: UpstreamFailed | None = None
        self.patience: Patience | None = None
        self.waiter: Waiter | None = None
        self.pump: Callable[[], None] | None = None
        self.chunk: Callable[[bytes], bool] | None = None

    async def read(self) -> bytes:
        """Return all of the body that has come since the last read as one piece; b"" = complete.

        Waits only when there is nothing. Raises UpstreamFailed when the worker cut the answer (after
        what had come before the cut has been handed out) and UpstreamTimeout when it fell silent.
        """
        while not (pieces := self.pieces):
            if self.complete:
                return b""
            if self.failure is not None:
                raise self.failure
            await self.wait()
        self.pieces = []
        if not self.complete and self.failure is None:
            self._connection.drained()
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def read_all(self, limit: int) -> bytes:
        """Return the rest of the body; one of more than `limit` bytes is cancelled: UpstreamFailed."""
        pieces: list[bytes] = []
        size = 0
        while piece := await self.read():
            size += len(piece)
            if size > limit:
                self.close()
                raise UpstreamFailed("the worker's answer is larger than allowed")
            pieces.append(piece)
        return b"".join(pieces)

    def attend(self, pump: Callable[[], None], chunk: Callable[[bytes], bool] | None) -> None:
        """Have `pump` called whenever something has changed, and now for what has come already.

        `chunk` is asked first, with what has been read between two chunks and not been parsed: it returns
        whether that is whole chunks and it has dealt with them. Not while times are taken.
        """
        self.pump = pump
        self._connection.drained()
        if self.patience is None:
            self.chunk = chunk
        else:
            self.patience.wait()
        if self.pieces:
            pump()

    def leave(self) -> None:
        """Have nobody called any more."""
        self.pump = self.chunk = None

    def wait(self) -> Waiter:
        """Return what the connection wakes when something has changed."""
        if self.patience is not None:
            self.patience.wait()
        self.waiter = waiter = Waiter(self._loop)
        return waiter

    def advance(self) -> None:
        """Resume the reader if one waits: a piece, the end or a failure has come.

        The reader may run from within this call, to its end: it is the last thing that a caller does.
        """
        if self.patience is not None and (self.complete or self.failure is not None):
            self.patience.close()
        waiter = self.waiter
        if self.pump is not None:
            self.pump()
        elif waiter is not None:
            self.waiter = None
            waiter.wake()

    def close(self) -> None:
        """Finish with the answer, any number of times: one that is not complete is cancelled at once."""
        if not self.complete and self.failure is None:
            self.failure = UpstreamFailed("the answer was closed before it was complete")
            self._connection.abort()
            self.advance()
