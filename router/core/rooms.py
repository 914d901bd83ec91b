"""Where new blocks go: rows that are free, and those kept free behind a run for the blocks that follow it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Some rows that follow each other: the first, and how many.
Run: TypeAlias = tuple[int, int]

# Rows kept free behind a short run, so that blocks decoded one by one follow each other too.
ROOM = 64
ROOMS = 2048
_RESERVED = 1
_WINDOW = 16_384
# Above this share of rows in use, new ones are taken instead of looking for free ones.
_DENSE = 0.85


class Rooms:
    """`keys` of all rows: 0 where one is free, 1 where it is kept free. From `high` on none was ever used."""

    __slots__ = ("_capacity", "_hand", "_keys", "_rooms", "_spare", "high")

    def __init__(self, keys: NDArray[np.uint64], capacity: int) -> None:
        self._keys = keys
        self._capacity = capacity
        self.high = 1
        self._hand = 1
        self._spare: list[Run] = []
        # By the last row of a run, how many are kept free behind it.
        self._rooms: dict[int, int] = {}

    def use(self, after: int, blocks: int) -> bool:
        """Take rows that are kept free right behind a row, if there are so many."""
        left = self._rooms.get(after, 0) - blocks
        if left < 0:
            return False
        del self._rooms[after]
        if left:
            self._rooms[after + blocks] = left
        return True

    def take(self, wanted: int, after: int, blocks: int) -> Run:
        """Return free rows, up to `wanted`, right behind row `after` where they are kept free.

        `blocks`: how many rows are in use.
        """
        room = self._rooms.pop(after, 0)
        dense = blocks / _DENSE + ROOMS
        if room:
            row, length = after + 1, room
        elif after and after + 1 == self.high < dense and self.high + wanted + ROOM < self._capacity:
            row, length = self.high, max(wanted, ROOM)
            self.high += length
        else:
            row, length = self._free(max(wanted, ROOM), dense)
        used = min(wanted, length)
        if used < length:
            self._rooms[row + used - 1] = length - used
            if not room:
                self._keep(row + used, length - used)
        return row, used

    def leave(self, after: int) -> None:
        """Keep nothing free behind a row any more."""
        length = self._rooms.pop(after, 0)
        if length:
            self._keys[after + 1 : after + 1 + length] = 0

    def _keep(self, row: int, length: int) -> None:
        """Mark rows as not free, and give back those kept longest when there are many."""
        self._keys[row : row + length] = _RESERVED
        if len(self._rooms) > ROOMS:
            # Several at once: a dict whose first entries are gone takes long to find the first that is not.
            for after in list(islice(self._rooms, ROOMS // 64)):
                self.leave(after)

    def _free(self, wanted: int, dense: float) -> Run:
        if not self._spare:
            self._look_for_spare(dense)
        if self._spare:
            row, length = self._spare.pop()
            if length > wanted:
                self._spare.append((row + wanted, length - wanted))
            return row, min(length, wanted)
        row = self.high
        length = min(wanted, self._capacity - row)
        self.high += length
        return row, length

    def _look_for_spare(self, dense: float) -> None:
        """Collect free rows from the next windows that have any, unless nearly all are in use."""
        if self.high < dense and self.high + _WINDOW < self._capacity:
            return
        for _ in range(self.high // _WINDOW + 1):
            start = self._hand if self._hand < self.high else 1
            self._hand = min(start + _WINDOW, self.high)
            free = np.flatnonzero(self._keys[start : self._hand] == 0)
            if len(free):
                breaks = np.flatnonzero(np.diff(free) != 1) + 1
                firsts = free[np.concatenate(([0], breaks))]
                lengths = np.diff(np.concatenate(([0], breaks, [len(free)])))
                self._spare = list(zip((firsts + start).tolist(), lengths.tolist(), strict=True))[::-1]
                return
