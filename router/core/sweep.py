"""What is left to do after views were reset or closed, in small portions.

A pass goes once over all rows and takes the retired slots out of their states; rows that nobody holds any
more go, and afterwards the slots are free. A pass also counts which states are in use, and is followed by a
tidying of the tables, so that nothing stays behind.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from router.core.states import NOBODY

if TYPE_CHECKING:
    from router.core.holder import Holder
    from router.core.index import Index
    from router.core.packed import Packed

_LEAST_STATES = 4096
# Rows looked at cost about a hundredth of rows changed by hand.
_ROWS_PER_PIECE = 8


@dataclass(slots=True)
class Retired:
    """One slot's leavings."""

    slot: int
    holder: Holder
    predictions: dict[int, float]
    names: Packed | None


class Sweep:
    """`step` does a portion; portions are in pieces of about 0.5 us."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._left: deque[Retired] = deque()
        self._passing: list[int] = []
        self._next: list[int] = []
        self._row = 0
        self._dead: list[int] = []
        self._tidying: deque[Packed] = deque()
        self._at = 0
        # What holds memory that nobody needs; dropped one by one, for it takes time to give much back.
        self._rubbish: list[object] = []
        self._states_after = 0

    def retire(self, slot: int, holder: Holder, predictions: dict[int, float], names: Packed | None) -> None:
        """Sweep a slot, and what only its view used."""
        self._left.append(Retired(slot, holder, predictions, names))

    def step(self, portion: int) -> bool:
        """Do a portion; say whether there is more to do."""
        if self._rubbish:
            del self._rubbish[-1]
        elif self._left:
            self._empty(self._left[0], portion)
        elif self._index.tree.loose:
            self._release(self._index.tree.loose.pop())
        elif self._dead:
            self._bury(portion)
        elif self._row:
            self._look(portion * _ROWS_PER_PIECE)
        elif self._tidying:
            self._tidy()
        elif self._next or self._states_to_forget():
            self._begin()
        else:
            return False
        return True

    def _states_to_forget(self) -> bool:
        """Whether a pass is worth it for the states alone: there are many, or nothing is held any more."""
        states = len(self._index.states)
        return states > 2 * self._states_after + _LEAST_STATES or (states > 1 and not self._index.tree.blocks)

    def _empty(self, retired: Retired, portion: int) -> None:
        """Take away a slot's predictions and tables; its rows are for the next pass."""
        predicted, bit = self._index.predicted, 1 << retired.slot
        while retired.predictions and portion > 0:
            key, _ = retired.predictions.popitem()
            portion -= 1
            left = predicted.get(key, 0) & ~bit
            if left:
                predicted[key] = left
            else:
                predicted.pop(key, None)
        while retired.holder.copies and portion > 0:
            retired.holder.copies.popitem()
            portion -= 1
        if portion <= 0 or (retired.names is not None and retired.names.shrink(portion // 64 + 1)):
            return
        self._left.popleft()
        if any(retired.holder.blocks.values()):
            self._next.append(retired.slot)
        else:
            self._index.give_slot(retired.slot)

    def _begin(self) -> None:
        self._passing, self._next = self._next, []
        self._row = 1
        self._index.states.start_count()

    def _look(self, rows: int) -> None:
        """Go over the next rows."""
        tree, states = self._index.tree, self._index.states
        end = min(self._row + rows, tree.high)
        words = tree.state_words[self._row : end]
        used = np.flatnonzero(np.bincount(words, minlength=1)).tolist()
        retired = sum(1 << slot for slot in self._passing)
        kept = {state: states.keep(state, ~retired) for state in used}
        if any(old != new for old, new in kept.items()):
            table = np.arange(used[-1] + 1, dtype=np.uint32)
            table[used] = list(kept.values())
            words[:] = table[words]
            unheld = (words == NOBODY) & (tree.child_words[self._row : end] == 0)
            unheld &= tree.key_words[self._row : end] > 1
            self._dead = (np.flatnonzero(unheld) + self._row).tolist()
        states.count(kept.values())
        self._row = end
        if end >= tree.high:
            self._end()

    def _end(self) -> None:
        """Every row has been seen: the slots are nowhere any more."""
        self._row = 0
        for slot in self._passing:
            self._index.give_slot(slot)
        self._passing = []
        self._index.states.end_count()
        self._states_after = len(self._index.states)
        self._tidying.extend((self._index.tree.heads, *self._index.shared_names()))

    def _bury(self, portion: int) -> None:
        """Take out rows that nobody holds, children before parents as they lie."""
        for _ in range(min(portion, len(self._dead))):
            self._release(self._dead.pop())

    def _release(self, row: int) -> None:
        """Take a row out, unless it is in use again or gone."""
        if self._index.tree.keys[row] > 1:
            self._index.tree.release(row)

    def _tidy(self) -> None:
        if not self._index.blocks:
            for table in self._tidying:
                self._rubbish += table.clear()
            self._tidying.clear()
            self._rubbish += self._index.tree.clear()
            return
        self._at = self._tidying[0].tidy(self._at)
        if not self._at:
            self._tidying.popleft()
