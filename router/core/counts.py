"""What a rank's streams have done since its worker was added."""

from __future__ import annotations

from dataclasses import dataclass, field

from router.core.lag import Lag


@dataclass(slots=True)
class StreamCounts:
    """Kept by a stream and its cursor; a new stream of the same rank goes on counting.

    `batches` applied, those `undecodable`, those that `clears` the view; `gaps` found, those `lost` for good
    because no replay had what was missing, `replays` asked for, `duplicates` dropped, batches `skipped` as
    older than a reset, and the `lag` of those that came live. `cuts`: how often the connection was lost.
    """

    batches: int = 0
    undecodable: int = 0
    clears: int = 0
    gaps: int = 0
    lost: int = 0
    replays: int = 0
    duplicates: int = 0
    skipped: int = 0
    cuts: int = 0
    lag: Lag = field(default_factory=Lag)
