"""The timeline of one simulation, from the first request to the end of the last answer."""

from __future__ import annotations

from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, TypeAlias

from workers.simulate.fleet import SimFleet
from workers.simulate.results import Result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from workers.simulate.records import Sample
    from workers.simulate.setup import Setup
    from workers.traces.workload import Workload

    Happening: TypeAlias = tuple[float, Callable[[float], object]]

_SAMPLES = 200
_REPORT_EVERY = 50  # requests
_LONG = 1e9  # seconds: whatever has not ended by then never will


def simulate(workload: Workload, setup: Setup, progress: Callable[[int], None] | None = None) -> Result:
    """Run a workload; `progress` is told now and then how many more requests have been sent."""
    fleet, told = SimFleet(setup), 0
    samples: list[Sample] = []
    for now, happens in timeline(workload, setup, fleet, samples):
        fleet.reach(now)
        happens(now)
        if progress is not None and len(fleet.records) - told >= _REPORT_EVERY:
            progress(len(fleet.records) - told)
            told = len(fleet.records)
    fleet.reach(_LONG)
    if progress is not None:
        progress(len(fleet.records) - told)
    return Result.of(
        fleet.records,
        samples,
        workload=workload.name,
        policy=setup.policy,
        variant=setup.variant,
        workers=setup.workers,
        retracted=fleet.retracted,
    )


def timeline(workload: Workload, setup: Setup, fleet: SimFleet, samples: list[Sample]) -> list[Happening]:
    """Return all that happens to a fleet from outside, in order; of one moment, requests come last."""
    happenings: list[Happening] = []
    for sync in workload.syncs:
        happenings += [(sync.at, fleet.pause), (sync.at + sync.seconds, fleet.resume)]
    for number, at in enumerate(_evenly(setup.restarts, workload.seconds)):
        happenings.append((at, partial(_restart, fleet, number % setup.replicas)))
    for number, at in enumerate(_evenly(setup.losses, workload.seconds)):
        happenings.append((at, partial(fleet.lose, number % setup.workers)))
    if setup.load_seconds:
        asked = int(workload.seconds / setup.load_seconds)
        happenings += [(number * setup.load_seconds, fleet.note_loads) for number in range(1, asked + 1)]
    for at in _evenly(_SAMPLES, workload.seconds):
        happenings.append((at, lambda now: samples.append(fleet.sample(now))))
    happenings += [(ask.at, partial(fleet.ask, ask)) for ask in workload.asks]
    return sorted(happenings, key=itemgetter(0))


def _restart(fleet: SimFleet, replica: int, _now: float) -> None:
    fleet.restart(replica)


def _evenly(times: int, seconds: float) -> Iterator[float]:
    """Yield so many moments that part a span of time evenly."""
    return (seconds * number / (times + 1) for number in range(1, times + 1))
