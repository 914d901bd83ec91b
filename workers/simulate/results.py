"""What a run has shown, in numbers that can be compared."""

from __future__ import annotations

from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING

import msgspec

from workers.simulate.records import Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.simulate.records import Record

_POINTS = 200


class Spread(msgspec.Struct):
    """A distribution, in seconds; all 0 of no values."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p99: float = 0.0
    highest: float = 0.0

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return that of some values, in any order."""
        if not values:
            return cls()
        ordered = sorted(values)
        return cls(fmean(ordered), *(quantile(ordered, share) for share in (0.5, 0.9, 0.99, 1)))


def quantile(ordered: Sequence[float], share: float) -> float:
    """Return the least of the ordered values that such a share of all does not exceed."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)]


class Result(msgspec.Struct):
    """One run. `hit_share`: of all prompt tokens, those that the engines had cached.

    `unended`: requests that never got their whole answer. `busiest`: prompt tokens computed by the worker
    with most of them, as a multiple of the mean. `curve`: TTFT in seconds at even shares of the requests.
    """

    workload: str
    policy: str
    variant: str
    requests: int
    unended: int
    ttft: Spread
    tpot: Spread
    e2e: Spread
    hit_share: float
    busiest: float
    retracted: int
    seconds: float
    curve: list[float]
    samples: list[Sample]

    @classmethod
    def of(
        cls,
        records: Sequence[Record],
        samples: list[Sample],
        *,
        workload: str,
        policy: str,
        variant: str = "",
        workers: int,
        retracted: int = 0,
    ) -> Result:
        """Return what the records of all requests say."""
        ttfts = sorted(record.ttft for record in records if record.ttft is not None)
        ended = [record for record in records if record.seconds is not None]
        prompt = sum(record.prompt for record in ended)
        return cls(
            workload=workload,
            policy=policy,
            variant=variant,
            requests=len(records),
            unended=len(records) - len(ended),
            ttft=Spread.of(ttfts),
            tpot=Spread.of([tpot(record) for record in ended if record.output > 1]),
            e2e=Spread.of([record.seconds or 0.0 for record in ended]),
            hit_share=sum(record.cached for record in ended) / prompt if prompt else 0.0,
            busiest=_busiest(ended, workers),
            retracted=retracted,
            seconds=max((record.at + (record.seconds or 0.0) for record in ended), default=0.0),
            curve=[quantile(ttfts, point / _POINTS) for point in range(_POINTS + 1)] if ttfts else [],
            samples=samples,
        )


def tpot(record: Record) -> float:
    """Return the seconds between two tokens of an answer that is complete and has several."""
    return ((record.seconds or 0.0) - (record.ttft or 0.0)) / (record.output - 1)


def _busiest(records: Sequence[Record], workers: int) -> float:
    computed = [0] * workers
    for record in records:
        computed[record.worker] += record.prompt - record.cached
    total = sum(computed)
    return max(computed) * workers / total if total else 0.0
