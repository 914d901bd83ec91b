"""Which metrics, labels and values there are: those of the table, and those that recording rules make."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, get_args

import yaml

from router.core.breaker import BreakerState
from router.core.steps import State
from router.errors import Fault
from router.fleet.worker import WorkerState
from router.observe.definition import Definition, Scrape
from router.observe.histogram import Histogram
from router.observe.metrics import Stage
from router.observe.rendering import number
from router.observe.table import METRICS
from tests.monitoring.promql import uses
from tests.observe.seen import counts, fleet

PROMETHEUS = Path(__file__).parent.parent.parent / "deploy" / "prometheus"
# What Prometheus adds to everything that it scrapes.
TARGET = frozenset({"instance", "job"})
VALUES = {
    "state": {*WorkerState, *State, *BreakerState},
    "fault": set(get_args(Fault)),
    "stage": set(get_args(Stage)),
    "reason": {"full", "timeout", "ousted"},
    "mode": {"distrusted"},
    "job": {"kv-router"},
    "cause": {"contradicted", "fault", "hash_conflict", "rebuild", "silent"},
}


def rules(name: str) -> list[dict[str, Any]]:
    """Return the rules of a file of deploy/prometheus/rules."""
    groups = yaml.safe_load((PROMETHEUS / "rules" / f"{name}.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


@cache
def labels() -> dict[str, frozenset[str]]:
    """Return every name that a query may use, with the labels that it has."""
    known = {"up": TARGET}
    for definition in METRICS:
        own = frozenset(definition.labels) | TARGET
        for name in names(definition):
            known[name] = own | ({"le"} if name.endswith("_bucket") else set())
    for rule in rules("recording"):
        known[rule["record"]] = uses(rule["expr"]).grouped - {"le"}
    return known


def names(definition: Definition) -> list[str]:
    """Return the names under which a metric's samples are found."""
    if definition.kind != "histogram":
        return [definition.full_name]
    return [definition.full_name + suffix for suffix in ("_bucket", "_sum", "_count")]


@cache
def bounds() -> dict[str, set[str]]:
    """Return the values of `le` by the name of the samples."""
    found = {}
    for definition in METRICS:
        for _, value in definition.read(Scrape(counts(), fleet())):
            if isinstance(value, Histogram):
                found[f"{definition.full_name}_bucket"] = {*map(number, value.bounds), "+Inf"}
    return found
