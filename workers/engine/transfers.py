"""Copies that take time: a line carries one after another, and acknowledges each when its time has come.

The other side fills the acknowledged ones as time passes; who owns the line looks at them when it will.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(slots=True)
class Line(Generic[T]):
    """Operations in flight and acknowledged, oldest first; `free_at` is when the last one ends."""

    flying: deque[tuple[float, T]] = field(default_factory=deque)
    acknowledged: list[T] = field(default_factory=list)
    free_at: float = 0.0

    def __len__(self) -> int:
        """Return how many operations have not been taken back, done or not."""
        return len(self.flying) + len(self.acknowledged)

    @property
    def items(self) -> list[T]:
        """What has not been taken back, oldest first."""
        return [*self.acknowledged, *(item for _, item in self.flying)]

    def start(self, item: T, seconds: float, now: float) -> float:
        """Begin an operation that takes `seconds` once the line is free; return when it will end."""
        self.free_at = max(now, self.free_at) + seconds
        self.flying.append((self.free_at, item))
        return self.free_at

    def advance(self, now: float) -> None:
        """Acknowledge what has ended by now."""
        while self.flying and self.flying[0][0] <= now:
            self.acknowledged.append(self.flying.popleft()[1])

    def reap(self) -> list[T]:
        """Take back what has been acknowledged."""
        taken, self.acknowledged = self.acknowledged, []
        return taken

    def drop(self, item: T) -> bool:
        """Give up an operation that has not been taken back; return whether there was one."""
        before = len(self)
        self.flying = deque(entry for entry in self.flying if entry[1] is not item)
        self.acknowledged = [entry for entry in self.acknowledged if entry is not item]
        return len(self) < before

    @property
    def next(self) -> float | None:
        """When the oldest operation in flight ends."""
        return self.flying[0][0] if self.flying else None

    def clear(self) -> None:
        """Forget all operations."""
        self.flying.clear()
        self.acknowledged.clear()
        self.free_at = 0.0
