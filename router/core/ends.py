"""Where stores go on: the rows of the blocks that they name as their parents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.packed import fingerprint

if TYPE_CHECKING:
    from router.core.events import Hash
    from router.core.holder import Holder
    from router.core.names import Names
    from router.core.rooms import Run
    from router.core.tree import Tree

_MOST = 1024


class Ends:
    """Row and key of the blocks that one slot has stored last; most stores follow one of them."""

    __slots__ = ("_ends", "_holder", "_names", "_tree")

    def __init__(self, tree: Tree, holder: Holder, names: Names) -> None:
        self._tree = tree
        self._holder = holder
        self._names = names
        self._ends: dict[Hash, Run] = {}

    def note(self, block: Hash, row: int, key: int) -> None:
        """Keep where the next store probably goes on."""
        if len(self._ends) >= _MOST:
            self._ends.clear()
        self._ends[block] = row, key

    def take(self, parent: Hash) -> Run | None:
        """Return row and key of a block that the slot holds, None when it holds none of that hash."""
        end, keys = self._ends.pop(parent, None), self._tree.keys
        if end is not None:
            row, key = end
            if keys[row] == key and self._holder.holds(row):
                return end
        row = self._names.row(fingerprint(parent))
        return (row, keys[row]) if row and self._holder.holds(row) else None
