"""The limit on a request as a whole, from its arrival to the end of its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.errors import RequestTooSlow, TookTooLong

if TYPE_CHECKING:
    import asyncio

    from router.errors import RouterError
    from router.proxy.cycle import Cycle


class Deadline:
    """Interrupts what serves one request once its time is over: `error` is then set, and says why.

    It is raised where the request waits; where that is in a Task a cancellation is raised instead.
    """

    __slots__ = ("_cycle", "_seconds", "_timer", "error")

    def __init__(self, cycle: Cycle, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._cycle = cycle
        self._seconds = seconds
        self.error: RouterError | None = None
        self._timer = loop.call_later(seconds, self._expire)

    def close(self) -> None:
        """Interrupt no more."""
        self._timer.cancel()

    def _expire(self) -> None:
        if self._cycle.more_body:
            self.error = RequestTooSlow(f"the request did not come within {self._seconds:g} s")
        else:
            self.error = TookTooLong(f"the request took longer than {self._seconds:g} s")
        self._cycle.drive.interrupt(self.error)
