"""The idle connections of one upstream: last in, first out, none older than the limit.

The most recently used connection is the least likely to have been closed by the worker, and those that
a burst left behind grow old at the other end, where one timer (not one per connection) closes them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.proxy.connection import Connection
    from router.proxy.limits import Limits


class IdleConnections:
    """A stack of connections that can also lose any of them, each step O(1)."""

    __slots__ = ("_keepalive_seconds", "_most", "_open", "_stack", "_timer")

    def __init__(self, limits: Limits) -> None:
        self._keepalive_seconds = limits.keepalive_seconds
        self._most = limits.max_idle_connections
        self._stack: dict[Connection, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._open = True

    def __len__(self) -> int:
        return len(self._stack)

    def take(self) -> Connection | None:
        """Return the connection used last, or None when there is none that is young enough."""
        stack = self._stack
        while stack:
            connection, _ = stack.popitem()
            if connection.idle_seconds() < self._keepalive_seconds and not connection.is_closing():
                return connection
            connection.abort()
        return None

    def put(self, connection: Connection) -> None:
        """Keep a connection that has just become idle, or close it when there are enough."""
        if not self._open or len(self._stack) >= self._most:
            connection.abort()
            return
        self._stack[connection] = None
        if self._timer is None:
            self._sleep(self._keepalive_seconds)

    def drop(self, connection: Connection) -> None:
        """Forget a connection that is lost; harmless when it was not idle."""
        self._stack.pop(connection, None)

    def close(self) -> None:
        """Close all of them, and every one that would come later."""
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in self._stack:
            connection.abort()
        self._stack.clear()

    def _sleep(self, seconds: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(seconds, self._reap)

    def _reap(self) -> None:
        self._timer = None
        while self._stack:
            oldest = next(iter(self._stack))
            remaining = self._keepalive_seconds - oldest.idle_seconds()
            if remaining > 0:
                self._sleep(remaining)
                return
            del self._stack[oldest]
            oldest.abort()
