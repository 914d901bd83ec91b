"""Telling one more physical copy of a block from a report of the one that is there.

Where an engine counts copies (vLLM 0.32), prompts that are alike and scheduled together store their first
blocks more than once, at nearly the same time. A later store that begins at the root with a block long
known is a report: prefix hits store nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.events import Hash

_TOGETHER_SECONDS = 1.0


class Reports:
    """The first blocks stored within the last second, by the publisher's clock."""

    __slots__ = ("_order", "_stored")

    def __init__(self) -> None:
        self._stored: dict[Hash, float] = {}
        self._order: deque[tuple[float, Hash]] = deque()

    def is_copy(self, first: Hash, ts: float, *, is_held: bool) -> bool:
        """Say whether a store from the root that begins with this block tells of new copies."""
        stored = self._stored
        if is_held:
            return ts - stored.get(first, float("-inf")) <= _TOGETHER_SECONDS
        stored[first] = ts
        order = self._order
        order.append((ts, first))
        while ts - order[0][0] > _TOGETHER_SECONDS:
            then, block = order.popleft()
            if stored.get(block) == then:
                del stored[block]
        return True
