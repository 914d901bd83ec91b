"""The loads of many ranks as columns, for costs that are computed for hundreds of ranks at once.

Each load writes its numbers into a row of its own whenever they change (`Load.show`); nothing is read from
hundreds of objects for a decision.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

import numpy as np

from router.core.ledger import Shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from router.core.costs import Amounts
    from router.core.ledger import Load

_FIRST = 64  # rows, to begin with
_WIDTH = len(Shown._fields)


class Board:
    """Rows of numbers; a load sits in one of the board that has last seated it."""

    __slots__ = ("_cells", "_loads", "_table")

    _cells: array[float]
    _table: NDArray[np.float64]

    def __init__(self) -> None:
        self._loads: list[Load] = []
        self._make(_FIRST)

    def __len__(self) -> int:
        """Return how many loads have a row."""
        return len(self._loads)

    def seat(self, loads: Sequence[Load]) -> NDArray[np.intp]:
        """Return the rows of some loads; those that have none here get one. About 0.2 us each."""
        for load in loads:
            if load.cells is not self._cells:
                self._loads.append(load)
                if len(self._loads) > len(self._table):
                    self._make(2 * max(len(self._table), len(loads)))
                else:
                    load.sit(self._cells, _WIDTH * (len(self._loads) - 1))
        return np.fromiter([load.at // _WIDTH for load in loads], np.intp, len(loads))

    def columns(self, rows: NDArray[np.intp]) -> Shown:
        """Return what some loads show. About 5 us."""
        return Shown(*self._table.take(rows, axis=0).T)

    def _make(self, rows: int) -> None:
        """Begin with so many rows; who has one keeps its number."""
        self._cells = array("d", bytes(8 * _WIDTH * rows))
        self._table = np.frombuffer(self._cells).reshape(rows, _WIDTH)
        for number, load in enumerate(self._loads):
            load.sit(self._cells, _WIDTH * number)


class Columns:
    """The loads of one lineup."""

    __slots__ = ("_board", "_rows")

    def __init__(self, board: Board, loads: Sequence[Load]) -> None:
        self._board = board
        self._rows = board.seat(loads)

    def now(self) -> Shown:
        """Return what they show, as it is."""
        return self._board.columns(self._rows)

    @staticmethod
    def of(numbers: Amounts) -> NDArray[np.float64]:
        """Return numbers that stand in the same order as one more column. About 20 ns each."""
        return np.asarray(numbers, np.float64)
