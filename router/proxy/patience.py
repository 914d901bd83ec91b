"""How long the reader of one answer waits: one timer per answer, moved only when it fires.

Nothing here runs per piece except a stored time, and nothing at all exists when no limit is set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from router.proxy.limits import Limits


class Patience:
    """Calls `expire(reason)` once a wait has lasted too long: for the first byte, then for each piece."""

    __slots__ = ("_allowed", "_expire", "_first", "_idle_seconds", "_loop", "_reason", "_since", "_timer")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: Limits, expire: Callable[[str], None]
    ) -> None:
        self._loop = loop
        self._expire = expire
        self._idle_seconds = limits.idle_seconds
        self._since: float | None = loop.time()
        self._allowed = limits.first_byte_seconds
        self._reason = "the worker sent no first byte in time"
        self._timer: asyncio.TimerHandle | None = None
        self._first = True
        self._arm()

    def wait(self) -> None:
        """A reader begins to wait; the wait for the first byte began with the request."""
        if self._since is None:
            self._since = self._loop.time()

    def arrived(self) -> None:
        """Some of the body has come: nobody waits, and from now on the limit between pieces holds."""
        self._since = None
        if self._first:
            self._first = False
            self.close()
            self._allowed = self._idle_seconds
            self._reason = "the worker sent nothing for too long"
            self._arm()

    def close(self) -> None:
        """Forget the timer; harmless when there is none."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self, seconds: float = 0.0) -> None:
        if self._allowed:
            self._timer = self._loop.call_later(seconds or self._allowed, self._check)

    def _check(self) -> None:
        remaining = self._allowed
        if self._since is not None:
            remaining += self._since - self._loop.time()
        if remaining > 0:
            self._arm(remaining)
        else:
            self._timer = None
            self._expire(self._reason)
