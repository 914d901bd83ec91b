"""Telling one more physical copy of a block from a report of the one that is there.

Where an engine counts copies (vLLM 0.32), prompts that are alike and scheduled together store their first
blocks more than once, at nearly the same time. A later store that begins at the root with a block long
known is a report: prefix hits store nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.wire import Hash

_TOGETHER_SECONDS = 1.0


class Reports:
    """The first blocks stored within the last second, by the publisher's clock."""

    __slots__ = ("_stored",)

    def __init__(self) -> None:
        self._stored: dict[Hash, float] = {}

    def is_copy(self, first: Hash, ts: float, *, is_held: bool) -> bool:
        """Say whether a store from the root that begins with this block tells of new copies."""
        stored = self._stored
        if is_held:
            return ts - stored.get(first, float("-inf")) <= _TOGETHER_SECONDS
        stored.pop(first, None)
        stored[first] = ts
        while ts - next(iter(stored.values())) > _TOGETHER_SECONDS:
            del stored[next(iter(stored))]
        return True
