"""Which node goes first: candidates for eviction in the order of their last use.

A candidate may have been used, locked or dropped since it was offered; that is looked at when its turn
comes, so that a use costs nothing.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.node import Node


class Leaves:
    """Candidates among the nodes for which `fits` holds; O(log n) per offer and pop."""

    def __init__(self, fits: Callable[[Node], bool]) -> None:
        self._fits = fits
        self._serial = count()
        self._heap: list[tuple[int, int, Node]] = []
        self._queued: set[Node] = set()

    def offer(self, node: Node) -> None:
        """Make a node a candidate if it can be one now."""
        if node not in self._queued and self._fits(node):
            self._queued.add(node)
            heappush(self._heap, (node.used, next(self._serial), node))

    def pop(self) -> Node | None:
        """Take out the least recently used candidate; None when there is none."""
        while self._heap:
            used, _, node = heappop(self._heap)
            self._queued.discard(node)
            if node.used == used and self._fits(node):
                return node
            self.offer(node)
        return None

    def clear(self) -> None:
        """Forget all candidates."""
        self._heap.clear()
        self._queued.clear()
