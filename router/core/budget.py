"""How many retries there may be: a share of the requests, and a few a second besides. Pure.

A worker that is down makes each of its requests two; a fleet that is overloaded must not see all of them
twice. What has been granted and not used is forgotten with time, so that a quiet hour earns no storm.
"""

from __future__ import annotations

from math import expm1

# How fast what is granted is forgotten, in seconds.
MEMORY_SECONDS = 10.0
# What comes within less is taken as one burst: a rate over so short a time says nothing.
_AT_ONCE = 1e-6


class RetryBudget:
    """`share`: retries per request; `floor`: retries a second that are granted without any.

    Over any time of t seconds with n requests there are at most share * n + floor * (t + 10) retries, beside
    what `share` has granted in the seconds before it.
    """

    __slots__ = ("_floor", "_left", "_requests", "_share", "_then")

    def __init__(self, share: float, floor: float, now: float) -> None:
        self._share = share
        self._floor = floor
        self._left = floor * MEMORY_SECONDS
        self._requests = 0
        self._then = now

    def adjust(self, share: float, floor: float) -> None:
        """Grant by other numbers from now on."""
        self._share, self._floor = share, floor

    def take(self, requests: int, now: float) -> bool:
        """Say whether one more retry may be made; `requests` is how many have come in all. About 1 us.

        It is asked at a retry only: requests cost nothing.
        """
        self._grant(requests, now)
        if self._left < 1:
            return False
        self._left -= 1
        return True

    def _grant(self, requests: int, now: float) -> None:
        """Grant for the time since the last retry, as if its requests had come evenly."""
        seconds, come = now - self._then, requests - self._requests
        self._then, self._requests = now, requests
        if seconds < _AT_ONCE:
            self._left += self._share * come
            return
        forgotten = -expm1(-seconds / MEMORY_SECONDS)
        rate = self._share * come / seconds + self._floor
        self._left += (rate * MEMORY_SECONDS - self._left) * forgotten
