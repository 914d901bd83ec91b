"""Every metric, in one table: the exposition, docs/metrics.md and the dashboard are made from METRICS."""

from __future__ import annotations

from router.observe.families.cache import CACHE
from router.observe.families.loads import LOADS
from router.observe.families.process import PROCESS
from router.observe.families.ranks import RANKS
from router.observe.families.requests import REQUESTS
from router.observe.families.share import SHARE
from router.observe.families.times import TIMES
from router.observe.families.workers import WORKERS

METRICS = (*REQUESTS, *TIMES, *CACHE, *WORKERS, *RANKS, *LOADS, *PROCESS, *SHARE)


def metric_table() -> str:
    """Return the reference of metrics as a Markdown table."""
    rows = [("Metric", "Kind", "Unit", "Labels", "Meaning", "Of several processes"), ("---",) * 6]
    rows += [
        (f"`{each.full_name}`", each.kind, each.unit, ", ".join(each.labels), each.help, each.merge)
        for each in METRICS
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
