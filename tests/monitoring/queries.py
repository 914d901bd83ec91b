"""From a panel to its queries: a counter is a rate, a histogram its quantiles, a gauge itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.observe.table import METRICS

if TYPE_CHECKING:
    from router.observe.definition import Definition
    from tests.monitoring.panels import Panel

AT = 'instance=~"$instance"'
_QUANTILES = (0.5, 0.95, 0.99)
_UNITS = {"seconds": "s", "bytes": "bytes", "requests": "short"}
# What the choosers above the dashboard have picked.
_PICKED = {"model": 'model=~"$model"', "worker": 'worker=~"$worker"'}
TABLE = {definition.name: definition for definition in METRICS}


@dataclass(frozen=True)
class Query:
    """One query, and how its lines are called."""

    expression: str
    legend: str


def queries(panel: Panel) -> list[Query]:
    """Return the queries of a panel."""
    if panel.expression:
        return [Query(panel.expression.format(at=AT), _legend(_labels(panel.expression)))]
    found: list[Query] = []
    for name in panel.metrics:
        found += _of_metric(panel, TABLE[name])
    return found


def unit(panel: Panel) -> str:
    """Return Grafana's unit for a panel's values."""
    if panel.unit or not panel.metrics:
        return panel.unit or "short"
    definition = TABLE[panel.metrics[0]]
    if definition.kind == "counter":
        return "reqps" if definition.unit == "requests" else "cps"
    return _UNITS.get(definition.unit, "short")


def description(panel: Panel) -> str:
    """Return what a panel's metrics mean, in the words of the table."""
    helps = [f"{TABLE[name].full_name}: {TABLE[name].help}." for name in panel.metrics]
    return "\n\n".join([panel.note, *helps] if panel.note else helps)


def _of_metric(panel: Panel, definition: Definition) -> list[Query]:
    name, inside, by = definition.full_name, _inside(panel, definition), ", ".join(panel.by)
    legend, grouping = _legend(panel.by), f" by ({by})" if by else ""
    if definition.kind == "histogram":
        return _of_histogram(panel, f"{name}_bucket{{{inside}}}", legend)
    if len(panel.metrics) > 1 or not legend:
        legend = f"{definition.name} {legend}".strip()
    if definition.kind == "counter":
        return [Query(f"sum{grouping} (rate({name}{{{inside}}}[$__rate_interval]))", legend)]
    return [Query(f"{panel.how}{grouping} ({name}{{{inside}}})", legend)]


def _of_histogram(panel: Panel, selector: str, legend: str) -> list[Query]:
    le = ", ".join((*panel.by, "le"))
    buckets = f"sum by ({le}) (rate({selector}[$__rate_interval]))"
    if panel.drawing == "heatmap":
        return [Query(buckets, "{{le}}")]
    return [
        Query(f"histogram_quantile({quantile}, {buckets})", f"p{quantile * 100:g} {legend}".strip())
        for quantile in _QUANTILES
    ]


def _inside(panel: Panel, definition: Definition) -> str:
    """Return what stands between the braces of a metric."""
    job = ['job="kv-router"'] if definition.prefix == "process_" else []
    picked = [_PICKED[label] for label in definition.labels if label in _PICKED]
    return ",".join([AT, *job, *picked, *filter(None, [panel.where])])


def _legend(labels: tuple[str, ...]) -> str:
    return " ".join(f"{{{{{label}}}}}" for label in labels)


def _labels(expression: str) -> tuple[str, ...]:
    """Return the labels of a recorded metric: its name begins with them."""
    recorded = expression.partition(":")[0]
    return () if "(" in recorded else tuple(recorded.split("_"))
