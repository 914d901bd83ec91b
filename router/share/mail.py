"""Messages between the processes of a router, over datagram sockets that their parent has made.

Each process has one inbox, and the other end of everybody else's. The parent keeps all of them open: a
process that is started anew has its old inbox, and nobody has to connect again. What finds no room is lost:
what is told is told again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    import socket
    from collections.abc import Callable, Sequence

# Read in one turn of the loop; the rest in the next.
_AT_ONCE = 32
_MOST_BYTES = 1 << 20


class Mail:
    """`lost` counts messages that found no room with somebody."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        inbox: socket.socket,
        others: Sequence[socket.socket],
        on_message: Callable[[bytes], object],
    ) -> None:
        self.lost = 0
        self._loop = loop
        self._inbox = inbox
        self._others = others
        self._on_message = on_message
        inbox.setblocking(False)
        for other in others:
            other.setblocking(False)
        loop.add_reader(inbox.fileno(), self._read)

    def send(self, payload: bytes) -> None:
        """Send to all others. About 3 us for each."""
        for other in self._others:
            try:
                other.send(payload)
            except OSError:
                self.lost += 1

    def close(self) -> None:
        """Read and send no more."""
        self._loop.remove_reader(self._inbox.fileno())
        for each in (self._inbox, *self._others):
            each.close()

    def _read(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                payload = self._inbox.recv(_MOST_BYTES)
            except BlockingIOError:
                return
            self._on_message(payload)
