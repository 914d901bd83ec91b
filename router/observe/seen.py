"""The fleet at one moment for those who watch it: what GET /watch sends, as JSON in the order of fields."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import msgspec

from router import __version__
from router.observe.decisions import Decision
from router.observe.resets import Reset
from router.observe.rows import WorkerRow

if TYPE_CHECKING:
    from router.observe.metrics import Metrics
    from router.observe.sight import Sight


class Totals(msgspec.Struct):
    """Counts of the process since it began; `waiting` requests and the index are those of now."""

    errors: int
    retries: int
    waiting: int
    index_blocks: int
    index_bytes: int


class Seen(msgspec.Struct):
    """`time` in seconds since the epoch; `whole`: it has all decisions and resets kept, not only new ones.

    `process`: which one of several it is ("2 of 4"), whose totals and decisions these are; workers are shown
    as all of them together see them.
    """

    time: float
    version: str
    policy: str
    totals: Totals
    workers: list[WorkerRow]
    whole: bool = True
    decisions: list[Decision] = []
    resets: list[Reset] = []
    process: str = ""


async def look(sight: Sight, counts: Metrics, policy: str, process: str) -> Seen:
    """Return what there is to see now."""
    index = counts.index()
    totals = Totals(
        errors=sum(counts.errors.values()),
        retries=counts.retries,
        waiting=sum(counts.waiting().values()),
        index_blocks=index.blocks,
        index_bytes=index.bytes,
    )
    return Seen(
        time.time(),
        __version__,
        policy,
        totals,
        await sight.rows(),
        process=process,
    )
