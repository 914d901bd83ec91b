"""A token bucket: so much at once, and so much over time. Time comes in as an argument."""

from __future__ import annotations


class Bucket:
    """Holds up to `burst` and gains `rate` a second; full at the start.

    What is taken may be more than there can ever be at once (one prompt longer than a limit per minute): it
    is given as soon as the bucket is full, and the debt is worked off before anything else is given. `taken`
    is what has been given out here since somebody set it back.
    """

    __slots__ = ("_at", "_level", "burst", "rate", "taken")

    def __init__(self, rate: float, burst: float) -> None:
        self.rate = rate
        self.burst = burst
        self.taken = 0.0
        self._level = burst
        self._at: float | None = None

    def take(self, amount: float, now: float) -> float:
        """Take `amount` and return 0, or take nothing and return in how many seconds it could be had."""
        self._fill(now)
        missing = min(amount, self.burst) - self._level
        if missing > 0:
            return missing / self.rate
        self._level -= amount
        self.taken += amount
        return 0.0

    def charge(self, amount: float, now: float) -> None:
        """Take what has been given out elsewhere already; the debt is never more than the bucket holds."""
        self._fill(now)
        self._level = max(-self.burst, self._level - amount)

    def _fill(self, now: float) -> None:
        if self._at is not None:
            self._level = min(self.burst, self._level + (now - self._at) * self.rate)
        self._at = now
