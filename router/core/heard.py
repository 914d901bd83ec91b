"""Which batches of an engine process have been heard, so that what a history tells again is no news.

A history read at the start tells of what happened before anybody listened, and one that a view is rebuilt
from of what has been applied before. News is what came after that, and what had been missed meanwhile.
"""

from __future__ import annotations

from collections import deque

# Ranges that were missed; of older ones it is not known any more.
_MOST_MISSED = 64


class Heard:
    """`to`: the highest number heard or known to be past, None while nothing has been."""

    __slots__ = ("_missed", "to")

    def __init__(self) -> None:
        self.to: int | None = None
        self._missed: deque[tuple[int, int]] = deque(maxlen=_MOST_MISSED)

    def take(self, seq: int, *, live: bool) -> bool:
        """Take note of a batch; say whether it is news. `live`: it came, or comes too, over the subscription.

        Batches of one replay must come in order. About 0.3 us.
        """
        if self.to is None:
            self.to = seq if live else None
            return live
        if seq <= self.to:
            return self._was_missed(seq)
        if seq > self.to + 1:
            self._missed.append((self.to + 1, seq - 1))
        self.to = seq
        return True

    def begin(self, to: int) -> None:
        """The history before a number has been read, -1 where there is none; later calls change nothing."""
        if self.to is None:
            self.to = to

    def anew(self) -> None:
        """Another process counts anew: all that it has published is news."""
        self.to = -1
        self._missed.clear()

    def _was_missed(self, seq: int) -> bool:
        """Say whether a batch had been missed; what was missed just before it will not come any more."""
        for at, (first, last) in enumerate(self._missed):
            if first <= seq <= last:
                self._missed[at] = seq + 1, last
                return True
        return False
