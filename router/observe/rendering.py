"""Values to the two text formats that Prometheus reads, a line each.

Text 0.0.4 and OpenMetrics 1.0.0 differ in the head of a family and in the end; samples are the same. Lines
are built with as little Python as that takes: a scrape of 500 ranks has some 20,000 of them.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from router.observe.histogram import Histogram
from router.printable import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.observe.definition import Definition, Values

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


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


def samples(definition: Definition, values: Values) -> Iterator[str]:
    """Yield a piece of text for each value, one line or those of a histogram. About 0.7 us a line."""
    name, labels = definition.full_name, _writer(definition.labels)
    for at, value in values:
        if isinstance(value, Histogram):
            yield "".join(_histogram(definition.family, labels(at), value))
        elif at:
            yield f"{name}{{{labels(at)}}} {number(value)}\n"
        else:
            yield f"{name} {number(value)}\n"


def number(value: float) -> str:
    """Return a number as both formats write it."""
    if math.isfinite(value):
        return repr(float(value))
    if math.isnan(value):
        return "NaN"
    return "+Inf" if value > 0 else "-Inf"


class _Pairs(dict[str, str]):
    """One label's name with each of its values, written once: as they are, but for what cannot be printed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __missing__(self, value: str) -> str:
        escaped = printable(value).replace("\\", r"\\").replace('"', r"\"")
        text = self[value] = f'{self._name}="{escaped}"'
        return text


def _writer(names: tuple[str, ...]) -> Callable[[tuple[str, ...]], str]:
    """Return what writes the labels of one family as they stand between the braces, sorted by name."""
    order = [(_Pairs(names[at]), at) for at in sorted(range(len(names)), key=names.__getitem__)]
    return lambda values: ",".join([pairs[values[at]] for pairs, at in order])


def _histogram(name: str, inside: str, histogram: Histogram) -> Iterator[str]:
    before, labels = (f"{inside},", f"{{{inside}}}") if inside else ("", "")
    counts = list(accumulate(histogram.counts))
    for bound, count in zip((*histogram.bounds, math.inf), counts, strict=True):
        yield f'{name}_bucket{{{before}le="{number(bound)}"}} {number(count)}\n'
    if histogram.bounds[0] >= 0:  # OpenMetrics allows no sum beside a negative bucket
        yield f"{name}_count{labels} {number(counts[-1])}\n{name}_sum{labels} {number(histogram.total)}\n"
