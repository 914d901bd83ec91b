"""Giving blocks up when there are more than the operator allows: the tails of prefixes matched longest ago.

A block can go when it has no children, so prefixes are cut back from their ends. What was matched longest
ago is found by sampling: blocks that were last matched (or stored) before a moment that lies so that there
are about as many as have to go. Small indexes are looked at whole, so there the order is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from router.core.states import NOBODY

if TYPE_CHECKING:
    from router.core.index import Index

_WINDOW = 65_536
_STAMPS = (1 << 32) - 1


class Eviction:
    """`evicted`: blocks given up so far."""

    def __init__(self, index: Index) -> None:
        self.evicted = 0
        self._index = index
        self._hand = 1

    def evict(self, wanted: int) -> None:
        """Give up `wanted` blocks or a few more. About 2 us a block, and 1 ms."""
        tree = self._index.tree
        until = max(0, tree.blocks - wanted)
        while tree.blocks > until:
            before, moment = tree.blocks, self._moment((tree.blocks - until) / tree.blocks)
            for _ in range(tree.high // _WINDOW + 1):
                self._cut_back(until, moment)
            if tree.blocks == before:
                self._cut_all_back(until)

    def _moment(self, share: float) -> int:
        """Return when the oldest `share` of ends, or somewhat more, had been matched last."""
        tree = self._index.tree
        sample = slice(1, tree.high, tree.high // _WINDOW + 1)
        ends = (tree.key_words[sample] > 1) & (tree.child_words[sample] == 0)
        stamps = tree.stamp_words[sample][ends]
        return int(np.quantile(stamps, min(1.0, 2 * share + 0.02))) if len(stamps) else _STAMPS

    def _cut_all_back(self, until: int) -> None:
        for _ in range(self._index.tree.high // _WINDOW + 1):
            self._cut_back(until, _STAMPS)

    def _cut_back(self, until: int, moment: int) -> None:
        """Cut back the ends found in the next window, oldest first."""
        tree = self._index.tree
        start = self._hand if self._hand < tree.high else 1
        end = self._hand = min(start + _WINDOW, tree.high)
        is_end = (tree.key_words[start:end] > 1) & (tree.child_words[start:end] == 0)
        ends = np.flatnonzero(is_end & (tree.stamp_words[start:end] <= moment)) + start
        for row in ends[np.argsort(tree.stamp_words[ends], kind="stable")].tolist():
            if tree.blocks <= until:
                # The next call goes on with what is left here.
                self._hand = start
                return
            self._cut(row, moment, until)

    def _cut(self, row: int, moment: int, until: int) -> None:
        """Give up a block and, while they are as old and nothing else hangs on them, its parents."""
        tree = self._index.tree
        while row and tree.blocks > until and not tree.children[row] and tree.stamps[row] <= moment:
            parent = tree.parents[row]
            self._disown(row)
            self.evicted += tree.release(row)
            if not tree.keys[parent]:
                return
            row = parent

    def _disown(self, row: int) -> None:
        """Take a block from all who hold it."""
        tree, states, holders = self._index.tree, self._index.states, self._index.holders
        for plane, mask in enumerate(states.masks[tree.states[row]]):
            left = mask
            while left:
                low = left & -left
                left ^= low
                holder = holders.get(low.bit_length() - 1)
                if holder is not None:
                    holder.lose(row, plane)
        tree.states[row] = NOBODY
