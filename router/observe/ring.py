"""The last few of what has happened, numbered from 1 as they came."""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import Generic, TypeVar

T = TypeVar("T")


class Ring(Generic[T]):
    """Keeps the last `most`; `count` is how many there have been in all."""

    __slots__ = ("_kept", "count")

    def __init__(self, most: int) -> None:
        self._kept: deque[T] = deque(maxlen=most)
        self.count = 0

    def append(self, one: T) -> None:
        """Add one, in place of the oldest if need be."""
        self.count += 1
        self._kept.append(one)

    def since(self, count: int) -> list[T]:
        """Return those that came after the first `count`, as far as they are kept; the oldest first."""
        kept = len(self._kept)
        return list(islice(self._kept, max(0, kept - (self.count - count)), None))
