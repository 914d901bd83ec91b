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
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from router.core.packed import Packed, Words
from router.core.states import NOBODY

if TYPE_CHECKING:
    from numpy.typing import NDArray

Run: TypeAlias = tuple[int, int]
_Number = TypeVar("_Number", np.uint32, np.uint64)

ROOT = 0
ROW_BYTES = 28
# Rows kept free behind a short run, so that blocks decoded one by one follow each other too.
_ROOM = 64
_ROOMS = 2048
_RESERVED = 1
# Parents without a holder that go at once with their last child.
_LINE = 512
_WINDOW = 16_384
# Above this share of rows in use, new ones are taken instead of looking for free ones.
_DENSE = 0.85
_SHORT = 16
# Up to so many rows are written faster one by one.
_FEW = 8


class Tree:
    """At most `bound` blocks; the arrays are reserved at once and take memory as they are written."""

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self.capacity = bound + bound // 4 + _ROOMS * _ROOM
        self._start()

    def _start(self) -> None:
        rows = self.capacity + 2
        self.key_words = _reserve(rows, np.uint64)
        self.state_words = _reserve(rows, np.uint32)
        self.parent_words = _reserve(rows, np.uint32)
        self.child_words = _reserve(rows, np.uint32)
        self.stamp_words = _reserve(rows, np.uint32)
        self.tag_words = _reserve(rows, np.uint32)
        self.keys = self.key_words.data
        self.states = self.state_words.data
        self.parents = self.parent_words.data
        self.children = self.child_words.data
        self.stamps = self.stamp_words.data
        self.tags = self.tag_words.data
        self.heads = Packed(self._is_stale_head)
        self.high = 1
        self.blocks = 0
        self._hand = 1
        self._spare: list[Run] = []
        self._rooms: dict[int, int] = {}
        self.loose: list[int] = []

    def clear(self) -> None:
        """Give all memory back, when there is no block left."""
        self._start()

    @property
    def nbytes(self) -> int:
        """Memory in use, in bytes."""
        return self.high * ROW_BYTES + self.heads.nbytes

    def locate(self, keys: array[int], after: int) -> list[Run]:
        """Return the runs of rows that hold a chain of keys below row `after`, as far as it is known.

        About 0.8 us a run, 0.1 us a block in short ones, 2 ns a block in long ones.
        """
        found: list[Run] = []
        mine, row, at, total = self.keys, after, 0, len(keys)
        while at < total:
            key = keys[at]
            if not row or mine[row + 1] != key:
                row = self.heads.get(key) - 1
                if row < 0 or mine[row + 1] != key:
                    break
            row += 1
            first, start = row, at
            at += 1
            stop = min(total, at + _SHORT)
            while at < stop and mine[row + 1] == keys[at]:
                row += 1
                at += 1
            if at == stop < total and mine[row + 1] == keys[at]:
                equal = self._equal(row + 1, keys, at)
                row += equal
                at += equal
            found.append((first, at - start))
        return found

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
            row, length = self._take(total - at, after)
            self._fill(row, keys if length == total else keys[at : at + length], after, state, stamp)
            if not after or row != after + 1:
                self.heads.put(keys[at], row)
            runs.append((row, length))
            after = row + length - 1
            at += length
        self.blocks += total
        return runs

    def append(self, key: int, after: int, state: int, stamp: int) -> int:
        """Add one unknown block below row `after`; return its row. About 0.7 us."""
        room = self._rooms.pop(after, 0)
        if not room:
            return self.grow(array("Q", (key,)), after, state, stamp)[0][0]
        row = after + 1
        if room > 1:
            self._rooms[row] = room - 1
        self.children[after] += 1
        self.keys[row], self.states[row], self.stamps[row] = key, state, stamp
        self.parents[row], self.children[row], self.tags[row] = after, 0, 0
        self.blocks += 1
        return row

    def _fill(self, row: int, keys: array[int], after: int, state: int, stamp: int) -> None:
        length = len(keys)
        if after:
            self.children[after] += 1
        if length <= _FEW:
            for key in keys:
                self.keys[row], self.states[row], self.stamps[row] = key, state, stamp
                self.parents[row], self.children[row], self.tags[row] = after, 1, 0
                after = row
                row += 1
            self.children[after] = 0
            return
        end = row + length
        self.key_words[row:end] = keys
        self.state_words[row:end] = state
        self.stamp_words[row:end] = stamp
        self.parent_words[row:end] = np.arange(row - 1, end - 1, dtype=np.uint32)
        self.parents[row] = after
        self.child_words[row:end] = 1
        self.children[end - 1] = 0
        self.tag_words[row:end] = 0

    def release(self, row: int) -> int:
        """Take out a block that nobody holds, if it has no children, and such parents; return how many.

        A long line of parents is left in `loose`, to be released later.
        """
        gone = 0
        while row and not self.children[row] and self.states[row] == NOBODY:
            if gone == _LINE:
                self.loose.append(row)
                break
            self._free_room(row)
            self.keys[row] = 0
            gone += 1
            row = self.parents[row]
            if row:
                self.children[row] -= 1
        self.blocks -= gone
        return gone

    def set_tags(self, row: int, tags: list[int]) -> None:
        """Give a run of rows their tags."""
        if len(tags) <= _FEW:
            for tag in tags:
                self.tags[row] = tag
                row += 1
        else:
            self.tag_words[row : row + len(tags)] = tags

    def touch(self, runs: list[Run], stamp: int) -> None:
        """Note that a prompt has matched these rows."""
        for row, length in runs:
            if length == 1:
                self.stamps[row] = stamp
            else:
                self.stamp_words[row : row + length] = stamp

    def is_stale_name(self, _: Words, values: Words) -> NDArray[np.bool_]:
        """Say which values of names (a row, and half of its key) are of blocks that are gone."""
        rows = (values >> np.uint64(32)).astype(np.int64)
        stale: NDArray[np.bool_] = self.key_words[rows] >> np.uint64(32) != values & np.uint64(0xFFFF_FFFF)
        return stale

    def is_stale_shared_name(self, names: Words, values: Words) -> NDArray[np.bool_]:
        """Say which shared names are of blocks that are gone or have another name by now."""
        tags = np.maximum(names >> np.uint64(32), np.uint64(1))
        rows = (values >> np.uint64(32)).astype(np.int64)
        renamed: NDArray[np.bool_] = self.tag_words[rows] != tags
        return renamed | self.is_stale_name(names, values)

    def _is_stale_head(self, keys: Words, values: Words) -> NDArray[np.bool_]:
        stale: NDArray[np.bool_] = self.key_words[values.astype(np.int64)] != keys
        return stale

    def _take(self, wanted: int, after: int) -> Run:
        """Return free rows, up to `wanted`, right behind row `after` where they are kept free."""
        room = self._rooms.pop(after, 0)
        if room:
            row, length = after + 1, room
        elif after and after + 1 == self.high < self._dense() and self.high + wanted + _ROOM < self.capacity:
            row, length = self.high, max(wanted, _ROOM)
            self.high += length
        else:
            row, length = self._free(max(wanted, _ROOM))
        used = min(wanted, length)
        if used < length:
            self._rooms[row + used - 1] = length - used
            if not room:
                self._keep_room(row + used, length - used)
        return row, used

    def _free(self, wanted: int) -> Run:
        if not self._spare:
            self._look_for_spare()
        if self._spare:
            row, length = self._spare.pop()
            if length > wanted:
                self._spare.append((row + wanted, length - wanted))
            return row, min(length, wanted)
        row = self.high
        length = min(wanted, self.capacity - row)
        self.high += length
        return row, length

    def _dense(self) -> float:
        """Return below how many rows looking for free ones is not worth while."""
        return self.blocks / _DENSE + _ROOMS

    def _look_for_spare(self) -> None:
        """Collect free rows from the next windows that have any, unless nearly all are in use."""
        if self.high < self._dense() and self.high + _WINDOW < self.capacity:
            return
        for _ in range(self.high // _WINDOW + 1):
            start = self._hand if self._hand < self.high else 1
            self._hand = min(start + _WINDOW, self.high)
            free = np.flatnonzero(self.key_words[start : self._hand] == 0)
            if len(free):
                breaks = np.flatnonzero(np.diff(free) != 1) + 1
                firsts = free[np.concatenate(([0], breaks))]
                lengths = np.diff(np.concatenate(([0], breaks, [len(free)])))
                self._spare = list(zip((firsts + start).tolist(), lengths.tolist(), strict=True))[::-1]
                return

    def _keep_room(self, row: int, length: int) -> None:
        """Mark rows as not free, and give back those kept longest when there are many."""
        self.key_words[row : row + length] = _RESERVED
        if len(self._rooms) > _ROOMS:
            self._free_room(next(iter(self._rooms)))

    def _free_room(self, row: int) -> None:
        length = self._rooms.pop(row, 0)
        if length:
            self.key_words[row + 1 : row + 1 + length] = 0


def _reserve(rows: int, kind: type[_Number]) -> NDArray[_Number]:
    """Return zeros that take memory page by page as they are written.

    Not in huge pages: clearing one may hold up the loop for 5 ms.
    """
    memory = mmap.mmap(-1, rows * np.dtype(kind).itemsize)
    if hasattr(mmap, "MADV_NOHUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_NOHUGEPAGE)
    return np.frombuffer(memory, kind)
