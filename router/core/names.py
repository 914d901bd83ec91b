"""Which block a rank's engine means by a hash.

SGLang's hashes are the same on every rank (0.5.23: SHA-256 of the tokens), so the ranks of a model share one
table of them, except for LoRA prompts, whose hashes depend on an internal number. In the shared table a hash
means one block and a block has one hash (its row's tag tells it apart from others); a rank that says
otherwise of a block that some rank holds does not hash like its peers and has to leave for a table of its
own. vLLM's hashes may be seeded per process (0.32), so each of its ranks has its own from the beginning.
"""

from __future__ import annotations

import sys
from array import array
from typing import TYPE_CHECKING

from router.core.packed import Packed, fingerprint, fingerprints

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.core.events import Hash, Stored
    from router.core.rooms import Run
    from router.core.tree import Tree

# Up to so many names are noted faster one by one.
_FEW = 8
_HALF = 0xFFFF_FFFF
_UPPER = _HALF << 32
# Which half of a number's memory is the upper one.
_UPPER_HALF = int(sys.byteorder == "little")


class Names:
    """One rank's names.

    `forget` is called with a row whose name the rank now uses for another block; `is_held` says whether any
    rank holds a row.
    """

    __slots__ = ("_forget", "_is_held", "_own", "_shared", "_tree")

    def __init__(
        self,
        tree: Tree,
        shared: Packed | None,
        *,
        forget: Callable[[int], object],
        is_held: Callable[[int], bool],
    ) -> None:
        self._tree = tree
        self._shared = shared
        self._own: Packed | None = None
        self._forget = forget
        self._is_held = is_held

    def row(self, name: int) -> int:
        """Return the row of the block that a name means on this rank, 0 when it means none. About 0.5 us."""
        if self._own is not None:
            value = self._own.get(name)
            row = value & _HALF
            if row and self._tree.keys[row] >> 32 == value >> 32:
                return row
        return self._shared_row(self._shared, name) if self._shared is not None else 0

    def _shared_row(self, table: Packed, name: int) -> int:
        value = table.get(name)
        row, tree = value & _HALF, self._tree
        is_valid = row and tree.keys[row] >> 32 == value >> 32 and tree.tags[row] == name >> 32
        return row if is_valid else 0

    def note(self, event: Stored, keys: array[int], runs: Sequence[Run], known: int) -> bool:
        """Note what the hashes of a store mean, of which the first `known` blocks are not new.

        Returns False when the rank has to leave the shared table. About 0.7 us for a new block, 0.1 us for
        one that the table has.
        """
        shared = self._shared if event.lora is None else None
        names, at = fingerprints(event.hashes), 0
        for row, length in runs:
            whole = len(runs) == 1
            mine = names if whole else names[at : at + length]
            theirs = keys if whole else keys[at : at + length]
            if shared is None:
                self._note_own(mine, row, theirs)
            elif not self._note_shared(shared, mine, row, theirs, is_new=at >= known):
                return False
            at += length
        return True

    def note_known(self, block: Hash, row: int, key: int) -> bool:
        """Note what a hash means, not an adapter's, of a block that others hold; False if it takes `note`."""
        if self._shared is None:
            return self.note_new([block], row, (key,))
        return self._tree.tags[row] == fingerprint(block) >> 32

    def note_new(self, blocks: list[Hash], row: int, keys: Sequence[int]) -> bool:
        """Note what the hashes of one run of new blocks mean, none of an adapter's; see `note`."""
        shared, tags = self._shared, self._tree.tags
        if len(keys) > _FEW:
            return self._note_run(shared, fingerprints(blocks), row, keys)
        claim = (self._own_table() if shared is None else shared).claim
        for at, key in enumerate(keys, row):
            name = fingerprint(blocks[at - row])
            if shared is not None:
                # First the tag: the table drops names whose rows have another one.
                tags[at] = name >> 32
            value = key & _UPPER | at
            if claim(name, value) != value:
                return self._note_run(shared, fingerprints(blocks[at - row :]), at, keys[at - row :])
        return True

    def _note_run(self, shared: Packed | None, names: list[int], row: int, keys: Sequence[int]) -> bool:
        if shared is not None:
            return self._note_shared(shared, names, row, keys, is_new=True)
        self._note_own(names, row, keys)
        return True

    def _own_table(self) -> Packed:
        if self._own is None:
            self._own = Packed(self._tree.is_stale_name)
        return self._own

    def _note_own(self, names: list[int], row: int, keys: Sequence[int]) -> None:
        own, values = self._own_table(), _values(row, keys)
        at = own.claim_all(names, values)
        while at < len(names):
            known = self.row(names[at])
            if known and known != row + at:
                self._forget(known)
            own.put(names[at], values[at])
            at = own.claim_all(names, values, at + 1)

    def _note_shared(
        self, table: Packed, names: list[int], row: int, keys: Sequence[int], *, is_new: bool
    ) -> bool:
        """Note shared names; say whether they agree with what other ranks call these blocks."""
        tags, before = _tags(names), [0] * len(names) if is_new else []
        if not is_new:
            there = self._tree.tags[row : row + len(names)]
            if there == tags:
                return True
            pairs = enumerate(zip(there, tags, strict=True), row)
            if any(old and old != new and self._is_held(at) for at, (old, new) in pairs):
                return False
            before = there.tolist()
        self._tree.set_tags(row, tags)
        values = _values(row, keys)
        at = table.claim_all(names, values)
        while at < len(names):
            known = self._shared_row(table, names[at])
            if known and known != row + at:
                if self._is_held(known):
                    # Tagged is only what the table knows.
                    self._tree.set_tags(row + at, memoryview(array("I", before[at:])))
                    return False
                self._tree.tags[known] = 0
            table.put(names[at], values[at])
            at = table.claim_all(names, values, at + 1)
        return True

    def drop_own(self, name: int) -> None:
        """Forget a name of this rank's own table: the rank does not hold its block any more."""
        if self._own is not None:
            self._own.discard(name)

    def drop_shared(self, name: int, row: int) -> None:
        """Forget the shared name of a block that no rank holds any more, if this is the one it has."""
        if self._shared is not None and self._shared.get(name) & _HALF == row:
            self._shared.discard(name)
            self._tree.tags[row] = 0

    def leave(self) -> None:
        """Share no names any more."""
        self._shared = None

    def surrender(self) -> Packed | None:
        """Forget all names of this rank alone; return their table, to be let go of in portions."""
        own, self._own = self._own, None
        return own


def _values(row: int, keys: Sequence[int]) -> list[int]:
    """Return what the names of a run map to: a row, and half of its key, lest a row used anew be mistaken."""
    return [key & _UPPER | at for at, key in enumerate(keys, row)]


def _tags(names: list[int]) -> memoryview[int]:
    """Return the upper halves of names."""
    halves = memoryview(array("Q", names)).cast("B").cast("I")
    return halves[_UPPER_HALF::2]
