"""What one slot holds: its bit in the states of rows, how many blocks that is, and further copies of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.states import States
    from router.core.tree import Tree


class Holder:
    """One slot. `blocks` by plane; `copies`, physical ones beyond the first, by plane and row."""

    __slots__ = ("_states", "_tree", "bit", "blocks", "copies", "slot")

    def __init__(self, tree: Tree, states: States, slot: int) -> None:
        self._tree = tree
        self._states = states
        self.slot = slot
        self.bit = 1 << slot
        self.blocks: Counter[int] = Counter()
        self.copies: dict[tuple[int, int], int] = {}

    def holds(self, row: int) -> bool:
        """Say whether the slot holds a block in any tier of any group."""
        state = self._tree.states[row]
        if self._states.held[state] & self.bit:
            return True
        return any(mask & self.bit for mask in self._states.masks[state])

    def mark(self, row: int, length: int, plane: int, *, counts: bool) -> None:
        """Hold a run of rows; with `counts`, those that are held already have one more copy."""
        tree, states, bit = self._tree, self._states, self.bit
        state = tree.states[row]
        if length > 1 and (tree.state_words[row : row + length] == state).all():
            new = states.add(state, plane, bit)
            if new != state:
                tree.state_words[row : row + length] = new
                self.blocks[plane] += length
                return
            if not counts:
                return
        for at in range(row, row + length):
            state = tree.states[at]
            new = states.add(state, plane, bit)
            if new != state:
                tree.states[at] = new
                self.blocks[plane] += 1
            elif counts:
                self.copies[plane, at] = self.copies.get((plane, at), 0) + 1

    def unmark(self, row: int, plane: int) -> int | None:
        """Hold a block in one plane no more; return the state that is left, None when it was not held there.

        With more than one copy, one goes, and the block is held all the same.
        """
        if self.copies and self._drop_copy(plane, row):
            return None
        state = self._tree.states[row]
        left = self._states.take(state, plane, self.bit)
        if left == state:
            return None
        self._tree.states[row] = left
        self.blocks[plane] -= 1
        return left

    def _drop_copy(self, plane: int, row: int) -> bool:
        """Take one of several copies away; say whether there was more than one."""
        more = self.copies.pop((plane, row), 0)
        if more > 1:
            self.copies[plane, row] = more - 1
        return more > 0

    def drop(self, row: int) -> bool:
        """Hold a block in no plane any more; say whether it was held in one."""
        dropped = False
        for plane in list(self.blocks):
            self.copies.pop((plane, row), None)
            left = self.unmark(row, plane)
            if left is not None:
                dropped = True
                if not left:
                    self._tree.release(row)
        return dropped

    def lose(self, row: int, plane: int) -> None:
        """Count a block less, that others have taken from all who held it."""
        self.blocks[plane] -= 1
        self.copies.pop((plane, row), None)
