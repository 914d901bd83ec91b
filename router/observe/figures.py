"""The figures of several processes as one: each metric's own rule (`Definition.merge`) says how.

Counters that add up must not go back when a process dies or is slow, since Prometheus would take that for a
new start and count all of it again: what a process has said last goes on to count (`lasting`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

from router.observe.histogram import Histogram
from router.observe.table import METRICS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from router.observe.definition import Merge, Values


class Figure(msgspec.Struct, array_like=True):
    """One value with its labels' values; of a histogram the sum, and the counts by bucket."""

    labels: tuple[str, ...]
    value: float
    counts: list[int] = []
    bounds: list[float] = []


# By the metric's full name.
Figures: TypeAlias = dict[str, list[Figure]]

_METRICS = {each.full_name: each for each in METRICS}
_MERGES: dict[Merge, Callable[[float, float], float]] = {"sum": float.__add__, "max": max, "min": min}


def figure(read: tuple[tuple[str, ...], float | Histogram]) -> Figure:
    """Return a value that was read, with its labels' values, as a figure."""
    labels, value = read
    if isinstance(value, Histogram):
        return Figure(labels, value.total, list(value.counts), list(value.bounds))
    return Figure(labels, float(value))


def values(found: Iterable[Figure]) -> Values:
    """Return the values of one metric, as its `read` would."""
    return [(figure.labels, _histogram(figure) if figure.counts else figure.value) for figure in found]


def merged(processes: Sequence[Figures]) -> Figures:
    """Return the figures of all processes together; of what only some of them have, those that they have."""
    together: Figures = {}
    for name, definition in _METRICS.items():
        found: dict[tuple[str, ...], Figure] = {}
        for process in processes:
            for figure in process.get(name, ()):
                before = found.get(figure.labels)
                found[figure.labels] = figure if before is None else _both(before, figure, definition.merge)
        together[name] = list(found.values())
    return together


def lasting(process: Figures, others: Iterable[Figures] | None = None) -> Figures:
    """Return what goes on to count of a process that does not answer: its counters and histograms.

    Where there are `others`, nothing does of workers that none of them has.
    """
    workers = None if others is None else frozenset().union(*map(_workers, others))
    return {
        name: [figure for figure in found if workers is None or _worker(name, figure) in (None, *workers)]
        for name, found in process.items()
        if name in _METRICS and _METRICS[name].kind != "gauge" and _METRICS[name].merge == "sum"
    }


def _workers(process: Figures) -> frozenset[str]:
    return frozenset(
        worker
        for name, found in process.items()
        for figure in found
        if (worker := _worker(name, figure)) is not None
    )


def _worker(name: str, figure: Figure) -> str | None:
    """Return the worker that a figure is about, if it is about one."""
    definition = _METRICS.get(name)
    if definition is None or "worker" not in definition.labels:
        return None
    return figure.labels[definition.labels.index("worker")]


def _both(one: Figure, other: Figure, merge: Merge) -> Figure:
    counts = [here + there for here, there in zip(one.counts, other.counts, strict=True)]
    return Figure(one.labels, _MERGES[merge](one.value, other.value), counts, one.bounds)


def _histogram(figure: Figure) -> Histogram:
    made = Histogram(figure.bounds)
    made.counts, made.total = figure.counts, figure.value
    return made
