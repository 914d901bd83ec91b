"""What a match has found: how many blocks of a prompt's prefix each slot holds, or is expected to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    # Nothing decodes one, so msgspec needs no types; commands that only name policies would wait for these.
    import numpy as np  # noqa: TC004
    from numpy.typing import NDArray  # noqa: TC004


class Match(msgspec.Struct, gc=False):
    """Slots that hold nothing are absent.

    `lower`: of the blocks that slots have said they hold, those found only in a tier below the device, by
    tier. `more`: what slots reach by predicted blocks, where that is more than they hold. `deepest`: the most
    that any slot reaches, `proven`: that it holds; 0 for nothing.

    What is held is in `by_slot` or, where holders change at many places, in `column`: the blocks of every
    slot, and a 0 behind the last. The dicts are then made only when they are asked for.
    """

    lower: dict[str, dict[int, int]] = {}
    more: dict[int, int] = {}
    deepest: int = 0
    proven: int = 0
    by_slot: dict[int, int] = {}
    column: NDArray[np.int64] | None = None
    _reach: dict[int, int] | None = None

    @property
    def held(self) -> dict[int, int]:
        """The blocks that each slot has said it holds."""
        if self.column is not None and not self.by_slot:
            slots = self.column.nonzero()[0]
            self.by_slot = dict(zip(slots.tolist(), self.column[slots].tolist(), strict=True))
        return self.by_slot

    @property
    def reach(self) -> dict[int, int]:
        """The same with predicted blocks; the same object where none is predicted."""
        if self._reach is None:
            self._reach = self.held | self.more if self.more else self.held
        return self._reach

    def of(self, slot: int) -> tuple[int, int]:
        """Return the blocks that a slot holds, and that it reaches."""
        if self.column is None:
            held = self.by_slot.get(slot, 0)
        else:
            held = int(self.column[slot]) if slot < len(self.column) else 0
        return held, self.more.get(slot, held)

    def ends(self) -> Iterable[int]:
        """Return the depths at which slots stop to hold the prefix, each once or more often."""
        return set(self.by_slot.values()) if self.column is None else self.column.tolist()

    def expect(self, more: dict[int, int]) -> None:
        """Take what is reached by predicted blocks."""
        self.more, self.deepest = more, max(self.deepest, *more.values())
