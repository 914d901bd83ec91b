"""An end to answers whose clients do not read: what they hold would be held for ever.

Nothing is armed as long as a client keeps up. A timer runs while writing is paused, and once the router has
closed a connection with bytes still to write. What the system has taken for a client counts as not taken: its
buffers hold megabytes, and a client that reads slowly leaves them full for long.
"""

from __future__ import annotations

import fcntl
import struct
import termios
from typing import TYPE_CHECKING

from router.proxy.cycle import reset

if TYPE_CHECKING:
    import asyncio


class Stall:
    """Breaks off a connection whose other end has taken nothing for `seconds` while it is watched.

    0: never.
    """

    __slots__ = ("_left", "_loop", "_seconds", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._left = 0

    def watch(self) -> None:
        """Begin, if there is anything to write."""
        if self._timer is None and self._seconds and self._transport.get_write_buffer_size():
            self._left = not_taken(self._transport)
            self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """Watch no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size():
            return
        before, self._left = self._left, not_taken(self._transport)
        if self._left < before:
            self._timer = self._loop.call_later(self._seconds, self._look)
        else:
            reset(self._transport)


def not_taken(transport: asyncio.Transport) -> int:
    """Return how many bytes the other end has not acknowledged; those in the process where none can tell."""
    held = transport.get_write_buffer_size()
    end = transport.get_extra_info("socket")
    try:
        return held + int(struct.unpack("i", fcntl.ioctl(end.fileno(), termios.TIOCOUTQ, bytes(4)))[0])
    except (AttributeError, OSError, ValueError):  # it is closed already
        return held
