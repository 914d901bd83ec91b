"""Events that wait to be applied: in order, and cut into pieces only as their turn comes."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from router.core.pieces import pieces

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from router.core.events import Removed, Stored
    from router.core.pieces import Piece


class Backlog:
    """True while anything waits, or may."""

    __slots__ = ("_cuts",)

    def __init__(self) -> None:
        self._cuts: deque[Iterator[Piece]] = deque()

    def __bool__(self) -> bool:
        return bool(self._cuts)

    def add(self, event: Stored | Removed) -> None:
        """Have an event wait behind the others."""
        self._cuts.append(pieces(event))

    def add_all(self, cut: Iterable[Piece]) -> None:
        """Have pieces wait behind the others."""
        self._cuts.append(iter(cut))

    def put_first(self, events: Sequence[Stored]) -> None:
        """Have events wait before all others."""
        self._cuts.extendleft(pieces(event) for event in reversed(events))

    def take(self) -> Piece | None:
        """Return the next piece and let go of it, None when there is none."""
        while self._cuts:
            piece = next(self._cuts[0], None)
            if piece is not None:
                return piece
            self._cuts.popleft()
        return None
