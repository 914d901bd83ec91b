"""What bounds the views of a fleet."""

from __future__ import annotations

from router.core.index import DEFAULT_MAX_BLOCKS


class ViewLimits:
    """What bounds the views; times in seconds, `predicted_bound` and `index_bound` in blocks."""

    __slots__ = ("approximate_ttl", "index_bound", "predicted_bound", "predicted_ttl", "replay_seconds")

    def __init__(
        self,
        *,
        predicted_ttl: float,
        approximate_ttl: float,
        predicted_bound: int,
        replay_seconds: float,
        index_bound: int = DEFAULT_MAX_BLOCKS,
    ) -> None:
        self.predicted_ttl = predicted_ttl
        self.approximate_ttl = approximate_ttl
        self.predicted_bound = predicted_bound
        self.replay_seconds = replay_seconds
        self.index_bound = index_bound
