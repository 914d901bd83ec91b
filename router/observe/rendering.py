"""Values to the two text formats that Prometheus reads, a line each.

Text 0.0.4 and OpenMetrics 1.0.0 differ in the head of a family and in the end; samples are the same. Lines
are built with as little Python as that takes: a scrape of 500 ranks has some 20,000 of them.
"""

from __future__ import annotations

import math
from itertools import accumulate, islice
from typing import TYPE_CHECKING, cast

from router.printable import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from router.observe.definition import Definition, Values
    from router.observe.histogram import Histogram

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
# Made at once, before others may have their turn.
LINES = 64


def head(definition: Definition, *, openmetrics: bool) -> str:
    """Return the lines that stand before a family's samples."""
    name = definition.family if openmetrics else definition.full_name
    help_ = definition.help.replace("\\", r"\\").replace("\n", r"\n")
    if openmetrics:
        help_ = help_.replace('"', r"\"")
    lines = f"# HELP {name} {help_}\n# TYPE {name} {definition.kind}\n"
    unit = definition.unit
    has_unit = openmetrics and unit and definition.name.endswith("_" + unit)
    return lines + (f"# UNIT {name} {unit}\n" if has_unit else "")


def samples(definition: Definition, values: Values, written: Written) -> Iterator[str]:
    """Yield the lines of some values at a time, `LINES` or a histogram's. About 0.3 us a line.

    `written` are the texts of the families before, and of scrapes before.
    """
    name, labels, numbers = definition.full_name, written.labels(definition.labels), written.numbers
    if definition.kind == "histogram":
        for at, histogram in cast("Iterable[tuple[tuple[str, ...], Histogram]]", values):
            yield "".join(_histogram(definition.family, labels[at], histogram))
        return
    left = iter(cast("Iterable[tuple[tuple[str, ...], float]]", values))
    while some := list(islice(left, LINES)):
        yield "".join([f"{name}{labels[at]} {numbers[value]}\n" for at, value in some])


class Written:
    """What scrapes have written: most families have the same labels, most scrapes too, and few numbers.

    Of the last scrape's numbers nothing is left; of labels no more than a scrape has lines (`begin`).
    """

    def __init__(self) -> None:
        self.numbers = _Numbers()
        self._pairs: dict[str, _Pairs] = {}
        self._labels: dict[tuple[str, ...], _Labels] = {}

    def begin(self, lines: int) -> None:
        """A scrape begins; the last one had so many lines."""
        self.numbers = _Numbers()
        if sum(map(len, self._labels.values())) > lines:
            self._pairs, self._labels = {}, {}

    def labels(self, names: tuple[str, ...]) -> _Labels:
        """Return the texts of labels of these names, by their values."""
        if names not in self._labels:
            pairs = [self._pairs.setdefault(name, _Pairs(name)) for name in names]
            order = sorted(range(len(names)), key=names.__getitem__)
            self._labels[names] = _Labels([(pairs[at], at) for at in order])
        return self._labels[names]


class _Numbers(dict[float, str]):
    """Numbers as both formats write them."""

    def __missing__(self, value: float) -> str:
        text = self[value] = number(value)
        return text


class _Labels(dict[tuple[str, ...], str]):
    """Values of a family's labels, and the labels as they stand in a line, in braces, sorted by name."""

    def __init__(self, order: list[tuple[_Pairs, int]]) -> None:
        self._order = order

    def __missing__(self, values: tuple[str, ...]) -> str:
        inside = ",".join([pairs[values[at]] for pairs, at in self._order])
        text = self[values] = f"{{{inside}}}" if inside else ""
        return text


class _Pairs(dict[str, str]):
    """One label's name with each of its values: as they are, but for what cannot be printed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __missing__(self, value: str) -> str:
        escaped = printable(value).replace("\\", r"\\").replace('"', r"\"")
        text = self[value] = f'{self._name}="{escaped}"'
        return text


def number(value: float) -> str:
    """Return a number as both formats write it."""
    if math.isfinite(value):
        return repr(float(value))
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


def _histogram(name: str, labels: str, histogram: Histogram) -> Iterator[str]:
    before = f"{labels[1:-1]}," if labels else ""
    counts = list(accumulate(histogram.counts))
    for bound, count in zip((*histogram.bounds, math.inf), counts, strict=True):
        yield f'{name}_bucket{{{before}le="{number(bound)}"}} {number(count)}\n'
    if histogram.bounds[0] >= 0:  # OpenMetrics allows no sum beside a negative bucket
        yield f"{name}_count{labels} {number(counts[-1])}\n{name}_sum{labels} {number(histogram.total)}\n"
