"""What Prometheus sees: the table of metrics, read from the process's counts and one snapshot of the fleet.

A worker or rank that is gone is gone from the next scrape: nothing is kept between two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from router.observe.figures import Figures, figures, values
from router.observe.histogram import Histogram
from router.observe.rows import WorkerRow
from router.observe.table import METRICS, PREFIX, Definition, Scrape, Values

if TYPE_CHECKING:
    from router.observe.metrics import Metrics

Snapshot = Callable[[], Iterable[WorkerRow]]


class FleetCollector(Collector):
    """Has the figures of a scrape."""

    def __init__(self, found: Figures) -> None:
        self._found = found

    def collect(self) -> Iterator[Metric]:
        """Yield every metric of METRICS."""
        for definition in METRICS:
            yield _family(definition, values(self._found.get(definition.full_name, ())))


class Exposition:
    """Renders what there is to see now, and the process's own memory and CPU time (`process_*`).

    It reads the counts, and calls `snapshot` once, for every scrape.
    """

    def __init__(self, counts: Metrics, snapshot: Snapshot) -> None:
        self._counts = counts
        self._snapshot = snapshot

    def figures(self) -> Figures:
        """Return what there is to see in this process."""
        return figures(Scrape(self._counts, self._snapshot()))

    def render(self, accept: str = "", together: Figures | None = None) -> tuple[bytes, str]:
        """Return body and content type in the format an Accept header asks for. About 10 us a value.

        `together` are the figures of all processes, where there are several.
        """
        registry = CollectorRegistry()
        registry.register(FleetCollector(self.figures() if together is None else together))
        ProcessCollector(registry=registry)
        try:
            encode, content_type = choose_encoder(accept)
        except (ValueError, TypeError):  # prometheus_client 0.26 reads a version without checking it
            encode, content_type = choose_encoder("")
        return encode(registry), content_type


def _family(definition: Definition, found: Values) -> Metric:
    unit = definition.unit if definition.name.endswith("_" + definition.unit) else ""
    family = Metric(PREFIX + definition.name, definition.help, definition.kind, unit)
    for at, value in found:
        labels = dict(zip(definition.labels, at, strict=True))
        if isinstance(value, Histogram):
            _add_histogram(family, labels, value)
        else:
            family.add_sample(definition.full_name, labels, value)
    return family


def _add_histogram(family: Metric, labels: dict[str, str], histogram: Histogram) -> None:
    cumulative = histogram.cumulative()
    for bound, count in cumulative:
        family.add_sample(f"{family.name}_bucket", {**labels, "le": bound}, count)
    if histogram.bounds[0] >= 0:  # OpenMetrics allows no sum beside a negative bucket
        family.add_sample(f"{family.name}_count", labels, cumulative[-1][1])
        family.add_sample(f"{family.name}_sum", labels, histogram.total)
