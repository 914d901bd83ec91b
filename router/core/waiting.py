"""Requests that wait for room, in the order in which they get it: by priority, then by arrival.

Pure: it knows nothing of requests but their priorities. One line per model, since room for one is no room for
another. A line that is full takes a request only by turning away one of lower priority, the newest of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Place(Generic[T]):
    """One request's place: `item` is whatever its owner wants back."""

    order: tuple[int, int]
    item: T


class Line(Generic[T]):
    """At most `most` places. Entering and leaving cost a bisection and one move of a pointer each."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._places: list[Place[T]] = []
        self._arrivals = 0

    def __len__(self) -> int:
        return len(self._places)

    @property
    def first(self) -> Place[T] | None:
        """Whose turn it is."""
        return self._places[0] if self._places else None

    def takes(self, priority: int) -> bool:
        """Return whether a request of this priority (higher goes first) would get a place."""
        return len(self._places) < self.most or (bool(self._places) and self._last_priority() < priority)

    def enter(self, priority: int, item: T) -> tuple[Place[T] | None, Place[T] | None]:
        """Return the place and the one that had to make way; (None, None) if there is no place."""
        if not self.takes(priority):
            return None, None
        ousted = self._places.pop() if len(self._places) >= self.most else None
        self._arrivals += 1
        place = Place((-priority, self._arrivals), item)
        insort(self._places, place, key=_order)
        return place, ousted

    def leave(self, place: Place[T]) -> None:
        """Give a place up; harmless when it is not held any more."""
        at = bisect_left(self._places, place.order, key=_order)
        if at < len(self._places) and self._places[at] is place:
            del self._places[at]

    def _last_priority(self) -> int:
        return -self._places[-1].order[0]


def _order(place: Place[T]) -> tuple[int, int]:
    return place.order
