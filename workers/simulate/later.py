"""What happens some time after its cause: events on their way, load on its way to other routers."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Later:
    """Things to do, soonest first; those of one time in the order they were added."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()

    def add(self, when: float, what: Callable[[], None]) -> None:
        """Do something once time has come to `when`."""
        heappush(self._heap, (when, next(self._count), what))

    def run(self, now: float) -> None:
        """Do what is due by `now`."""
        while self._heap and self._heap[0][0] <= now:
            heappop(self._heap)[2]()
