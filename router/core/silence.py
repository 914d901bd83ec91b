"""Telling a rank that has nothing to say from one that is not heard.

Engines publish after a prefill that stores blocks. When such requests complete on a rank, several of them
and for some time, and no batch comes, its publisher does not reach us.
"""

from __future__ import annotations

# Requests that must have stored blocks, and seconds since the last batch, until a rank counts as silent.
_REQUESTS, _SECONDS = 3, 10.0


class Silence:
    """`requests` have completed since the last batch, which came at `heard`, in seconds."""

    __slots__ = ("heard", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.heard = 0.0

    def batch(self, now: float) -> None:
        """Something was heard."""
        self.requests = 0
        self.heard = now

    def request(self) -> None:
        """A request that makes the rank store blocks has completed."""
        self.requests += 1

    def overdue(self, now: float) -> bool:
        """Whether a batch should have come long ago."""
        return self.requests >= _REQUESTS and now - self.heard >= _SECONDS
