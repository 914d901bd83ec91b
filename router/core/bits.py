"""Who holds the blocks of many states at once: their masks as rows of bits, for numpy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from array import array

    from numpy.typing import NDArray

_WORD = 64


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
        wanted = np.frombuffer(numbers, np.uint32)
        missing = wanted[np.frombuffer(self._made, np.bool_)[wanted] == 0]
        for number in missing.tolist():
            self._rows[number] = self._row(self._masks[number])
            self._made[number] = True
        return self._rows[wanted] & self._row(live)

    def _grow(self, words: int) -> None:
        """Begin with more rows, or wider ones: masks have bits beyond those that were live until now."""
        size = 2 * len(self._masks)
        self._made = bytearray(size)
        self._rows = np.zeros((size, max(words, self._rows.shape[1])), np.uint64)

    def _row(self, mask: int) -> NDArray[np.uint64]:
        size = self._rows.shape[1] * _WORD
        return np.frombuffer((mask & ((1 << size) - 1)).to_bytes(size // 8, "little"), np.uint64)


def places_of(rows: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Return the row and the place of each bit that is set, in the order of rows."""
    words = rows.ravel()
    some = words.nonzero()[0]
    bits = np.unpackbits(words[some].view(np.uint8), bitorder="little").view(np.bool_).nonzero()[0]
    row, word = np.divmod(some, rows.shape[1])
    which = bits // _WORD
    return row[which], (word * _WORD)[which] + bits % _WORD
