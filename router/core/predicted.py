"""What we have just routed to a rank and the rank has not yet confirmed.

Engines tell of new blocks after the prefill (SGLang 0.5.23: after each prefill result), so a follow-up can
come before its own event. Predicted blocks live apart from the view, with a time limit and a bound, and
die with the view's reset. An event about a block settles it: it is then the view's matter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.index import Index, strike

if TYPE_CHECKING:
    from collections.abc import Iterable


class Predicted:
    """One rank's predicted blocks: key -> when the prediction ends, soonest first."""

    __slots__ = ("_bit", "_bound", "_index", "_until", "ttl")

    def __init__(self, index: Index, slot: int, *, ttl: float, bound: int) -> None:
        """`ttl` in seconds; at most `bound` blocks, the oldest leave first."""
        self._index = index
        self._bit = 1 << slot
        self._until: dict[int, float] = {}
        self._bound = bound
        self.ttl = ttl

    def __len__(self) -> int:
        return len(self._until)

    def add(self, keys: Iterable[int], now: float) -> None:
        """Predict that the rank will hold these blocks soon. About 0.3 us a block."""
        until, masks, bit = self._until, self._index.predicted, self._bit
        end = now + self.ttl
        for key in keys:
            # A fresh end moves the entry to the back, so that the front is always the soonest to go.
            until.pop(key, None)
            until[key] = end
            masks[key] = masks.get(key, 0) | bit
        while len(until) > self._bound:
            self.settle(next(iter(until)))

    def settle(self, key: int) -> None:
        """Drop a prediction, because it has come true or cannot any more."""
        if self._until.pop(key, None) is not None:
            strike(self._index.predicted, key, self._bit)

    def expire(self, now: float) -> None:
        """Drop what is past its time. Called about once a second."""
        until = self._until
        while until:
            key = next(iter(until))
            if until[key] > now:
                return
            self.settle(key)

    def surrender(self, slot: int) -> dict[int, float]:
        """Start anew under another slot; return the old predictions, for the sweep."""
        old, self._until = self._until, {}
        self._bit = 1 << slot
        return old
