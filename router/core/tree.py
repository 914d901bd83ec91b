"""The blocks that any rank holds, as rows of packed arrays.

A row is one block: its key, its holders (a state), its parent's row, how many children it has, when a
prompt last matched it, and the upper half of the name that ranks which share names know it by (its tag).
Runs of blocks that came together lie in rows that follow each other, so a prompt is compared with them at
memory speed, and only the first block of a run needs an entry in a table (`heads`).

A block's parent is always there too: one that nobody holds any more stays as long as it has children.
Keys are chained, so a row's key says all of its prefix and two rows never have the same one.
"""

from __future__ import annotations

import mmap
from array import array
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

import numpy as np

from router.core.packed import Packed, Words
from router.core.rooms import ROOM, ROOMS, Rooms
from router.core.states import NOBODY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from router.core.rooms import Run

_Number = TypeVar("_Number", np.uint32, np.uint64)

ROOT = 0
ROW_BYTES = 28
# Parents without a holder that go at once with their last child.
_LINE = 512
# Up to so many rows are written faster one by one, and up to so many without numpy.
_FEW = 3
_MOST_SLICED = 64
_ONE_EACH = array("I", (1,)) * _MOST_SLICED
# From so many on, numpy is faster at comparing them and at writing one number to all.
_LONG = 1024


class Tree:
    """At most `bound` blocks; the arrays are reserved at once and take memory as they are written."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.capacity = bound + bound // 4 + ROOMS * ROOM
        self._start()

    def _start(self) -> None:
        rows = self.capacity + 2
        self.key_words = _reserve(rows, np.uint64)
        self.state_words = _reserve(rows, np.uint32)
        self.parent_words = _reserve(rows, np.uint32)
        self.child_words = _reserve(rows, np.uint32)
        self.stamp_words = _reserve(rows, np.uint32)
        self.tag_words = _reserve(rows, np.uint32)
        # As the arrays of keys that come are.
        self.keys = self.key_words.data.cast("B").cast("Q")
        self.states = self.state_words.data
        self.parents = self.parent_words.data
        self.children = self.child_words.data
        self.stamps = self.stamp_words.data
        self.tags = self.tag_words.data
        self.heads = Packed(self._is_stale_head)
        self._rooms = Rooms(self.key_words, self.capacity)
        self.blocks = 0
        self.loose: list[int] = []

    def clear(self) -> list[object]:
        """Begin anew, when there is no block left; return what held the old memory.

        To give it back takes about 0.2 ms a MB, so it is better dropped one by one.
        """
        words = [self.key_words, self.state_words, self.parent_words]
        words += [self.child_words, self.stamp_words, self.tag_words]
        old: list[object] = [*words, *self.heads.clear(), self._rooms]
        self._start()
        return old

    @property
    def high(self) -> int:
        """The first row that was never used; so were those behind it."""
        return self._rooms.high

    @property
    def nbytes(self) -> int:
        """Memory in use, in bytes."""
        return self.high * ROW_BYTES + self.heads.nbytes

    def locate(self, keys: array[int], after: int) -> list[Run]:
        """Return the runs of rows that hold a chain of keys below row `after`, as far as it is known.

        About 1 us a run, and 2 to 5 ns a block.
        """
        found: list[Run] = []
        mine, theirs, row, at, total = self.keys, memoryview(keys), after, 0, len(keys)
        while at < total:
            key = keys[at]
            if not row or mine[row + 1] != key:
                row = self.heads.get(key) - 1
                if row < 0 or mine[row + 1] != key:
                    break
            first, start = row + 1, at
            stop = at + _LONG if total - at > _LONG else total
            if mine[first : first + stop - at] == theirs[at:stop]:
                at = stop
                if at < total:
                    at += self._equal(first + at - start, keys, at)
            else:
                at = self._first_other(first, theirs, at)
            row = first + at - start - 1
            found.append((first, at - start))
        return found

    def _first_other(self, row: int, keys: memoryview[int], at: int) -> int:
        """Return the place of the first key that differs from that of its row; there is one."""
        mine, step = self.keys, 16 if len(keys) - at <= _MOST_SLICED else 256
        while step:
            while mine[row : row + step] == keys[at : at + step]:
                row += step
                at += step
            step //= 4
        return at

    def _equal(self, row: int, keys: array[int], at: int) -> int:
        """Return how many rows from `row` on have the keys from `at` on."""
        words = np.frombuffer(keys, np.uint64)
        start, width, total = at, 128, len(keys)
        while at < total:
            width = min(width, total - at)
            equal = self.key_words[row : row + width] == words[at : at + width]
            first = int(equal.argmin())
            if not equal[first]:
                return at + first - start
            at += width
            row += width
            width *= 4
        return total - start

    def grow(self, keys: array[int], after: int, state: int, stamp: int) -> list[Run]:
        """Add a chain of unknown keys below row `after`; return its runs. About 4 us, and 20 ns a block."""
        runs = []
        at, total = 0, len(keys)
        while at < total:
            row, length = self._rooms.take(total - at, after, self.blocks)
            self._fill(row, keys if length == total else keys[at : at + length], after, state, stamp)
            if not after or row != after + 1:
                self.heads.put(keys[at], row)
            runs.append((row, length))
            after = row + length - 1
            at += length
        self.blocks += total
        return runs

    def head(self, key: int) -> int:
        """Return the row of a block that begins a run, 0 when it is not known. About 0.3 us."""
        known = self.heads.get(key)
        return known if known and self.keys[known] == key else 0

    def extend(self, keys: Sequence[int], after: int, state: int, stamp: int) -> int:
        """Add a chain of unknown keys right behind a row; return its first row, 0 without room there."""
        blocks, row = len(keys), after + 1
        if self.blocks + blocks > self.bound or not self._rooms.use(after, blocks):
            return 0
        self.blocks += blocks
        if blocks > _FEW:
            self._fill(row, cast("array[int]", keys), after, state, stamp)
            return row
        self.children[after] += 1
        for at, key in enumerate(keys, row):
            self.keys[at], self.states[at], self.stamps[at] = key, state, stamp
            self.parents[at], self.children[at] = at - 1, 1
        self.children[after + blocks] = 0
        return row

    def _fill(self, row: int, keys: array[int], after: int, state: int, stamp: int) -> None:
        length = len(keys)
        end = row + length
        if after:
            self.children[after] += 1
        if length <= _MOST_SLICED:
            self.keys[row:end] = keys
            self.states[row:end] = array("I", (state,)) * length
            self.stamps[row:end] = array("I", (stamp,)) * length
            self.parents[row:end] = array("I", range(row - 1, end - 1))
            self.children[row:end] = _ONE_EACH[-length:]
        else:
            self.key_words[row:end] = keys
            self.state_words[row:end] = state
            self.stamp_words[row:end] = stamp
            self.parent_words[row:end] = np.arange(row - 1, end - 1, dtype=np.uint32)
            self.child_words[row:end] = 1
        self.parents[row] = after
        self.children[end - 1] = 0

    def release(self, row: int) -> int:
        """Take out a block that nobody holds, if it has no children, and such parents; return how many.

        A long line of parents is left in `loose`, to be released later.
        """
        gone = 0
        while row and not self.children[row] and self.states[row] == NOBODY:
            if gone == _LINE:
                self.loose.append(row)
                break
            self._rooms.leave(row)
            self.keys[row] = self.tags[row] = 0
            gone += 1
            row = self.parents[row]
            if row:
                self.children[row] -= 1
        self.blocks -= gone
        return gone

    def set_tags(self, row: int, tags: memoryview[int]) -> None:
        """Give a run of rows their tags."""
        self.tags[row : row + len(tags)] = tags

    def touch(self, runs: list[Run], stamp: int) -> None:
        """Note that a prompt has matched these rows."""
        one = array("I", (stamp,))
        for row, length in runs:
            if length <= _LONG:
                self.stamps[row : row + length] = one * length
            else:
                self.stamp_words[row : row + length] = stamp

    def is_stale_name(self, _: Words, values: Words) -> NDArray[np.bool_]:
        """Say which values of names (half of a key, and its row) are of blocks that are gone."""
        rows = (values & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        stale: NDArray[np.bool_] = self.key_words[rows] >> np.uint64(32) != values >> np.uint64(32)
        return stale

    def is_stale_shared_name(self, names: Words, values: Words) -> NDArray[np.bool_]:
        """Say which shared names are of blocks that are gone or have another name by now."""
        rows = (values & np.uint64(0xFFFF_FFFF)).astype(np.int64)
        renamed: NDArray[np.bool_] = self.tag_words[rows] != names >> np.uint64(32)
        return renamed | self.is_stale_name(names, values)

    def _is_stale_head(self, keys: Words, values: Words) -> NDArray[np.bool_]:
        stale: NDArray[np.bool_] = self.key_words[values.astype(np.int64)] != keys
        return stale


def _reserve(rows: int, kind: type[_Number]) -> NDArray[_Number]:
    """Return zeros that take memory page by page as they are written.

    Not in huge pages: clearing one may hold up the loop for 5 ms.
    """
    memory = mmap.mmap(-1, rows * np.dtype(kind).itemsize)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind)
