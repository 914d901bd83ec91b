"""What can be said of a stream from outside: its state, the reason, and since when."""

from __future__ import annotations

from router.core.steps import State


class Condition:
    """`since` in seconds. What goes into the reason is "" while it is not so.

    `unlinked`: why there is no connection. `lost`: what is lost for good, so that the view may over-claim
    until it is next cleared or rebuilt. `truncated`: which part of the past was never known. `short_history`:
    the engine's own no longer has all that the view could be rebuilt from. `unread`: how often one that did
    not come is still to be asked for.
    """

    __slots__ = ("lost", "short_history", "since", "state", "truncated", "unlinked", "unread", "why")

    def __init__(self) -> None:
        self.state = State.CONNECTING
        self.why = "no batch has come yet"
        self.since = 0.0
        self.unlinked = self.lost = self.truncated = ""
        self.short_history = False
        self.unread = 0

    def make_whole(self) -> None:
        """Nothing of what the view claims is in doubt any more."""
        self.lost = self.truncated = ""
        self.short_history = False
        self.unread = 0

    def truncate(self, why: str) -> None:
        """The past is not known, for one more reason."""
        self.truncated = "; ".join(filter(None, (why, self.truncated)))

    def settle(self, now: float) -> None:
        """Be what the stream is between two replays."""
        if self.unlinked:
            self.become(State.CONNECTING, "; ".join(filter(None, (self.unlinked, self.truncated))), now)
        elif self.lost:
            self.become(State.DEGRADED, self.lost, now)
        else:
            self.become(State.LIVE, self.truncated, now)

    def become(self, state: State, why: str, now: float) -> None:
        """Be in a state for a reason."""
        if state is not self.state or why != self.why:
            self.state, self.why, self.since = state, why, now
