"""Who holds the blocks of many states at once: their masks as rows of bits, for numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from array import array

    from numpy.typing import NDArray

_WORD, _SHIFT = 64, 6
_ONE = np.uint64(1)


class Bits:
    """One row of 64-bit words for each of `masks`, lowest slots first, made when it is first asked for."""

    __slots__ = ("_made", "_masks", "_rows")

    def __init__(self, masks: list[int]) -> None:
        """`masks` may grow; of one that becomes another `forget` must be told."""
        self._masks = masks
        self._made = bytearray()
        self._rows = np.zeros((0, 0), np.uint64)

    def forget(self, number: int) -> None:
        """Make the row of a mask anew when it is asked for."""
        if number < len(self._made):
            self._made[number] = False

    def clear(self) -> None:
        """Make every row anew."""
        self._made = bytearray(len(self._made))

    def of(self, numbers: array[int], live: int) -> NDArray[np.uint64]:
        """Return the rows of some masks, only the live slots set. About 10 us for 500, and 1 us a new one."""
        words = -(-live.bit_length() // _WORD)
        if words > self._rows.shape[1] or len(self._masks) > len(self._made):
            self._grow(words)
        wanted = np.frombuffer(numbers, np.uint32).astype(np.intp)
        made = np.frombuffer(self._made, np.bool_).take(wanted)
        if not made.all():
            self._make(wanted[~made].tolist())
        rows: NDArray[np.uint64] = self._rows.take(wanted, axis=0)
        rows &= self._row(live)
        return rows

    def _make(self, numbers: list[int]) -> None:
        for number in numbers:
            self._rows[number] = self._row(self._masks[number])
            self._made[number] = True

    def _grow(self, words: int) -> None:
        """Begin with more rows, or wider ones: masks have bits beyond those that were live until now."""
        size = 2 * len(self._masks)
        self._made = bytearray(size)
        self._rows = np.zeros((size, max(words, self._rows.shape[1])), np.uint64)

    def _row(self, mask: int) -> NDArray[np.uint64]:
        size = self._rows.shape[1] * _WORD
        return np.frombuffer((mask & ((1 << size) - 1)).to_bytes(size // 8, "little"), np.uint64)


def places_of(rows: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row and the place of each bit that is set, in the order of rows. About 30 us for 500."""
    words = rows.ravel()
    some = (words != 0).nonzero()[0]
    row, word = np.divmod(some, rows.shape[1])
    found = words[some]
    if (found & (found - _ONE)).any():
        bits = np.unpackbits(found.view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0]
        which = bits >> _SHIFT
        return row[which], (word << _SHIFT)[which] + (bits & (_WORD - 1))
    # One bit in each word, as where ranks drop out one by one: a float says which, and its power is exact.
    return row, (word << _SHIFT) + (np.frexp(found.astype(np.float64))[1] - 1)
