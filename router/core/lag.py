"""How late one rank's batches come, by the publisher's clock and ours, which need not agree.

A batch that seems to come before it was sent shows that the publisher's clock is ahead. The shortest lag of
the last minute or two is the difference of the clocks and a fraction of a millisecond: far below zero the
publisher's clock is ahead, far above it is behind, or there has been a queue all the time.
"""

from __future__ import annotations

_WINDOW_SECONDS = 60.0
_NEVER = float("inf")


class Lag:
    """In seconds: `last` of the latest batch, as computed; `early` counts the batches with less than 0."""

    __slots__ = ("_before", "_longest", "_shortest", "_until", "early", "last")

    def __init__(self) -> None:
        self.last: float | None = None
        self.early = 0
        self._shortest, self._longest = _NEVER, -_NEVER
        self._before = _NEVER, -_NEVER
        self._until = 0.0

    def add(self, seconds: float, now: float) -> None:
        """Take note of a batch; `now` is monotonic. About 0.1 us."""
        self.last = seconds
        if now >= self._until:
            self._turn(now)
        self._shortest = min(self._shortest, seconds)
        self._longest = max(self._longest, seconds)
        if seconds < 0:
            self.early += 1

    @property
    def shortest(self) -> float | None:
        """The shortest of this window of a minute and the one before it that had batches."""
        return None if self.last is None else min(self._shortest, self._before[0])

    @property
    def longest(self) -> float | None:
        """The longest of the same two windows."""
        return None if self.last is None else max(self._longest, self._before[1])

    def _turn(self, now: float) -> None:
        self._before = self._shortest, self._longest
        self._shortest, self._longest = _NEVER, -_NEVER
        self._until = now + _WINDOW_SECONDS
