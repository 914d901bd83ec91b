"""How much of each turn of the event loop the streams may take, all together.

Whoever has more to do than fits into this turn is called again in one of the next, in the order of asking,
and requests are served in between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Turns:
    """To be shared by all streams of a loop; `seconds` of each turn are theirs."""

    __slots__ = ("_loop", "_open", "_seconds", "_until", "_waiting")

    def __init__(self, seconds: float = 0.002) -> None:
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()
        self._open = False
        self._until = 0.0

    def end(self) -> float:
        """Return when this turn's time is over, on `perf_counter` (uvloop's own clock counts whole ms)."""
        if not self._open:
            self._open = True
            self._until = perf_counter() + self._seconds
            self._loop.call_soon(self._next)
        return self._until

    def is_over(self) -> bool:
        """Say whether to come `later`: the time is over, or others wait for theirs."""
        return bool(self._waiting) or perf_counter() > self.end()

    def later(self, callback: Callable[[], None]) -> None:
        """Call back in one of the next turns, after those who wait already."""
        self._waiting.append(callback)
        self.end()

    def _next(self) -> None:
        self._open = False
        while self._waiting and perf_counter() <= self.end():
            self._waiting.popleft()()
