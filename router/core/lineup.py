"""What does not change from one request to the next about the ranks to choose from.

Most requests for a model have the same ranks to choose from, in the same list; what each decision would
read from every rank anew is kept per list. All of it is dropped when a view takes another slot or block size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from router.core.board import Board, Columns
    from router.core.ledger import Load
    from router.core.rank import Rank
    from router.core.rendezvous import Rendezvous

# Lists made for one request only (after a failure, by adapter) come and go; they must not pile up.
_MOST = 32
# From so many ranks on costs are computed for all at once.
_MANY = 48


class Group(NamedTuple):
    """The ranks with one block size (tokens) and kind of events: position by the slot of the rank's view.

    `slots` are the same slots, in the order of positions.
    """

    block_size: int
    bigram: bool
    seats: dict[int, int]
    slots: NDArray[np.int64]


class Lineup(NamedTuple):
    """A list of ranks in columns; those whose block size is not known yet are in no group.

    `seated` are the same as `ranks`, which is the list itself; `rendezvous` is made of their names.
    `slots`: one bit for each rank's view. `columns`: the loads once more, None where there are few.
    """

    ranks: list[Rank]
    seated: tuple[Rank, ...]
    rendezvous: Rendezvous
    loads: tuple[Load, ...]
    groups: tuple[Group, ...]
    slots: int
    columns: Columns | None = None


class Lineups:
    """The lineups in use, by the identity of their lists, which must not change meanwhile."""

    __slots__ = ("_board", "_known")

    def __init__(self) -> None:
        self._known: dict[int, Lineup] = {}
        self._board: Board | None = None

    def of(self, ranks: list[Rank]) -> Lineup:
        """Return the lineup of a list. 0.2 us when it is known, else 0.3 us a rank."""
        known = self._known.get(id(ranks))
        if known is not None and known.ranks is ranks:
            return known
        if len(self._known) >= _MOST:
            self._known.clear()
        made = lineup(ranks)
        if len(ranks) >= _MANY:
            made = made._replace(columns=self._columns(made.loads))
        self._known[id(ranks)] = made
        return made

    def clear(self) -> None:
        """Forget all: a view has changed."""
        self._known.clear()

    def _columns(self, loads: Sequence[Load]) -> Columns:
        from router.core.board import Board, Columns  # noqa: PLC0415 - see `lineup`

        # The rows of ranks that have left are given up while no lineup is known that has any.
        in_use = any(made.columns is not None for made in self._known.values())
        if self._board is None or (not in_use and len(self._board) > len(loads)):
            self._board = Board()
        return Columns(self._board, loads)


def lineup(ranks: list[Rank]) -> Lineup:
    """Make the lineup of a list of ranks."""
    # Commands that only name policies would wait for these; the index has them.
    import numpy as np  # noqa: PLC0415

    from router.core.rendezvous import Rendezvous  # noqa: PLC0415

    groups: dict[tuple[int, bool], dict[int, int]] = {}
    for at, rank in enumerate(ranks):
        view = rank.view
        if view.block_size:
            groups.setdefault((view.block_size, view.bigram), {})[view.slot] = at
    made = tuple(
        Group(size, bigram, seats, np.fromiter(seats, np.int64, len(seats)))
        for (size, bigram), seats in groups.items()
    )
    slots = [rank.view.slot for rank in ranks]
    bits = np.zeros(max(slots, default=0) + 1, np.bool_)
    bits[slots] = True
    mask = int.from_bytes(np.packbits(bits, bitorder="little").tobytes(), "little")
    rendezvous, loads = Rendezvous([rank.name for rank in ranks]), tuple([rank.load for rank in ranks])
    return Lineup(ranks, tuple(ranks), rendezvous, loads, made, mask)
