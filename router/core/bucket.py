"""A token bucket: so much at once, and so much over time. Time comes in as an argument.

It holds up to `burst` and gains `rate` a second; full at the start. What is taken may be more than there can
ever be at once (one prompt longer than a limit per minute): it is given as soon as the bucket is full, and
the debt is worked off before anything else is given. When it will be full again is all there is to remember.
"""

from __future__ import annotations


def take(full_at: float, amount: float, now: float, *, rate: float, burst: float) -> tuple[float, float]:
    """Take from a bucket that will be full at a time; return when it will be then, and 0.

    Or take nothing: what is returned then is the time as it was, and in how many seconds it could be had.
    """
    full_at = max(full_at, now)
    missing = min(amount, burst) - (burst - (full_at - now) * rate)
    # The tolerance is for rounding: who waits as long as told gets it.
    if missing > 1e-6 * burst:
        return full_at, missing / rate
    return full_at + amount / rate, 0.0


class Bucket:
    """One bucket; a bucket that has never been touched is full."""

    __slots__ = ("_burst", "_full_at", "_rate")

    def __init__(self, rate: float, burst: float) -> None:
        self._rate = rate
        self._burst = burst
        self._full_at = 0.0

    def take(self, amount: float, now: float) -> float:
        """Take `amount` and return 0, or take nothing and return in how many seconds it could be had."""
        self._full_at, wait = take(self._full_at, amount, now, rate=self._rate, burst=self._burst)
        return wait
