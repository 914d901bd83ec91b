"""The end of a TLS connection whose client does not say goodbye.

A loop that closes one waits half a minute for the client's close_notify. Nobody needs that (RFC 8446, 6.1),
and a client that keeps its connection for later does not read, so it does not see ours either.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.proxy.stall import not_taken

if TYPE_CHECKING:
    import asyncio

_SECONDS = 0.5


class Goodbye:
    """Breaks a closed connection off, half a second after the client has taken all that was left for it."""

    __slots__ = ("_loop", "_timer", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None

    def wait(self) -> None:
        """Begin, unless it has begun already."""
        if self._timer is None:
            self._timer = self._loop.call_later(_SECONDS, self._look)

    def end(self) -> None:
        """Wait no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        if not_taken(self._transport):
            self._timer = self._loop.call_later(_SECONDS, self._look)
        else:
            self._transport.abort()
