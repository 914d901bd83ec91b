"""When views were emptied, over all ranks: the counts of a view say how often, not when."""

from __future__ import annotations

from time import time
from typing import TypeAlias

import msgspec

from router.observe.ring import Ring

# A weight sync empties every rank of a fleet at once.
MOST = 512


class Reset(msgspec.Struct):
    """A view that was emptied; `time` in seconds since the epoch."""

    time: float
    worker: str
    rank: int
    cause: str


Resets: TypeAlias = Ring[Reset]


def note(resets: Resets, worker: str, rank: int, cause: str) -> None:
    """Enter one that happens now."""
    resets.append(Reset(time(), worker, rank, cause))
