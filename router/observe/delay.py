"""How late the event loop is: a timer that should ring ten times a second, and when it does.

Every request waits as long, at every step; a loop that is often late by more than some milliseconds has too
much to do, or somebody holds it up.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SECONDS = 0.1


class LoopDelay:
    """Tells `observe` of each delay, in seconds, until closed. About 5 us a second."""

    __slots__ = ("_loop", "_observe", "_timer")

    def __init__(self, observe: Callable[[float], None]) -> None:
        self._observe = observe
        self._loop = asyncio.get_running_loop()
        self._timer = self._set()

    def close(self) -> None:
        """Stop."""
        self._timer.cancel()

    def _set(self) -> asyncio.TimerHandle:
        return self._loop.call_later(_SECONDS, self._ring, perf_counter() + _SECONDS)

    def _ring(self, due: float) -> None:
        # uvloop counts whole milliseconds, and may be up to one too early.
        self._observe(max(0.0, perf_counter() - due))
        self._timer = self._set()
