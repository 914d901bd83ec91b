"""What we have just routed to a rank and the rank has not yet confirmed.

Engines tell of new blocks after the prefill (SGLang 0.5.23: after each prefill result), so a follow-up can
come before its own event. Predicted blocks live apart from the view, with a time limit and a bound, and
die with the view's reset. An event about a block settles it: it is then the view's matter.

Some ranks do not keep what is predicted of them: too small a cache, an engine that does not cache at all. The
share that comes true is learnt from their answers, and forgotten slowly, so that they are tried again.

Keys are chained, so an entry for one block says all of its prefix. Deep in a prompt, where a few blocks
more or less change little, there is one entry for every 32 blocks: a prompt of 32k tokens at page size 1
has 2,000.
"""

from __future__ import annotations

from array import array
from itertools import islice, takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.core.index import Index

# Up to this depth each block has an entry, from there on the last of each so many.
EACH, STEP = 1024, 32
# How much one answer says of the next one; how much of a doubt is left after a second, half of it after 34;
# and the doubt that is none.
_LEARNT, _KEPT, _NO_DOUBT = 0.1, 0.98, 0.01

FRESH = 1 / 64
"""A prediction that ends by no more than this share of its time sooner is as good as a new one."""


# Over the bound, one entry in so many more is given up.
_SPARE = 64


class Predicted:
    """One rank's predicted blocks. `until`: when each prediction ends, by key, soonest first."""

    __slots__ = ("_bit", "_bound", "_index", "_slot", "ttl", "until")

    def __init__(self, index: Index, slot: int, *, ttl: float, bound: int) -> None:
        """`ttl` in seconds, 0 to predict nothing; at most `bound` entries, the oldest leave first."""
        self._index = index
        self._slot = slot
        self._bit = 1 << slot
        self.until: dict[int, float] = {}
        self._bound = bound
        self.ttl = ttl

    def __len__(self) -> int:
        return len(self.until)

    def add(self, keys: Iterable[int], now: float, start: int = 0, known: int = 0) -> None:
        """Predict that the rank will soon hold the blocks of a prompt, `keys` those from depth `start` on.

        `known` of these, the first ones, were found predicted just now; they only last longer. About 0.1 us
        an entry that is new, 0.05 us one that is known, and nothing when all were predicted a moment ago.
        """
        keys = keys if isinstance(keys, array) else array("Q", keys)
        end = now + self.ttl
        # The last block of a prompt is never looked for, so it is never among the known.
        if not keys or not self.ttl or (known + 1 >= len(keys) and self._lasts(keys[-1], end)):
            return
        self._enter(entries(keys, start), end)

    def _lasts(self, key: int, end: float) -> bool:
        """Whether a prediction is there, and would not last noticeably longer if it were made anew."""
        return end - self.until.get(key, 0.0) < self.ttl * FRESH

    def _enter(self, news: array[int], end: float) -> None:
        until, masks, bit = self.until, self._index.predicted, self._bit
        if until.keys().isdisjoint(news):
            until.update(dict.fromkeys(news, end))
        else:
            # A fresh end moves the entry to the back, so that the front is always the soonest to go.
            for key in news:
                until.pop(key, None)
                until[key] = end
        get = masks.get
        for key in news:
            masks[key] = get(key, 0) | bit
        over = len(until) - self._bound
        if over > 0:
            # Many at once: a dict whose first entries are gone takes long to find the first that is not.
            for key in list(islice(until, over + self._bound // _SPARE)):
                self.settle(key)

    def settle(self, key: int) -> None:
        """Drop a prediction, because it has come true or cannot any more."""
        if self.until.pop(key, None) is not None:
            _strike(self._index.predicted, key, self._bit)

    def settle_all(self, keys: Iterable[int]) -> None:
        """Drop the predictions among these. About 30 ns a key, and 0.2 us a prediction."""
        until = self.until
        for key in [key for key in keys if key in until]:
            self.settle(key)

    @property
    def trust(self) -> float:
        """The share of predicted blocks that can be expected to come true, 0 to 1."""
        return self._index.doubts.get(self._slot, 1.0)

    def learn(self, share: float) -> None:
        """An answer has shown that this share of what was predicted of a prompt has come true, 0 to 1."""
        if share < 1.0 or self._slot in self._index.doubts:
            self._doubt(self.trust + _LEARNT * (share - self.trust))

    def _doubt(self, trust: float) -> None:
        if trust > 1.0 - _NO_DOUBT:
            self._index.doubts.pop(self._slot, None)
        else:
            self._index.doubts[self._slot] = trust

    def forgive(self) -> None:
        """Doubt what is predicted a little less. Called about once a second."""
        if self._slot in self._index.doubts:
            self._doubt(1.0 - _KEPT * (1.0 - self.trust))

    def expire(self, now: float, most: int = 1024) -> int:
        """Drop what is past its time, `most` entries at once; return how many. About 0.3 us an entry."""
        first = islice(self.until.items(), most)
        past = [key for key, _ in takewhile(lambda entry: entry[1] <= now, first)]
        for key in past:
            self.settle(key)
        return len(past)

    def surrender(self, slot: int) -> dict[int, float]:
        """Start anew under another slot; return the old predictions, for the sweep."""
        old, self.until = self.until, {}
        self._index.doubts.pop(self._slot, None)
        self._slot = slot
        self._bit = 1 << slot
        return old


def entries(keys: array[int], start: int) -> array[int]:
    """Return the keys that get entries, of those from depth `start` on."""
    if start + len(keys) <= EACH:
        return keys
    last = (max(start, EACH) | (STEP - 1)) - start
    return keys[: max(0, EACH - start)] + keys[last::STEP]


def _strike(masks: dict[int, int], key: int, bit: int) -> None:
    """Clear one bit of a key's mask, and the entry with its last bit."""
    left = masks.get(key, 0) & ~bit
    if left:
        masks[key] = left
    else:
        masks.pop(key, None)
