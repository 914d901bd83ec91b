"""What a recorded choice drew at random, drawn once more."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")


class Draws(Random):
    """Draws what was drawn; when that is used up, from a seed."""

    def __init__(self) -> None:
        super().__init__(0)
        self.left: deque[float] = deque()

    def choices(  # type: ignore[override]  # the stub allows for more than is used
        self, population: Sequence[T], weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[T]:
        """Return what stands in the recorded places."""
        if len(self.left) < k:
            return super().choices(population, weights, cum_weights=cum_weights, k=k)
        return [population[self._place(len(population))] for _ in range(k)]

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]  # the stub asks for more than is used
        """Return what stands in the recorded place."""
        return seq[self._place(len(seq))] if self.left else super().choice(seq)

    def sample(self, population: Sequence[T], k: int, *, counts: Any = None) -> list[T]:  # noqa: ARG002
        """Return what stands in the recorded places; nobody counts here."""
        if len(self.left) < k:
            return super().sample(population, k)
        return [population[self._place(len(population))] for _ in range(k)]

    def _place(self, size: int) -> int:
        return min(int(self.left.popleft()), size - 1)
