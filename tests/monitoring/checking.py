"""Whether an expression names only what there is."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.monitoring.known import VALUES, bounds, labels
from tests.monitoring.promql import uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.monitoring.promql import Matcher


def mistakes(expression: str) -> list[str]:
    """Return what is wrong with it."""
    return list(_mistakes(expression))


def _mistakes(expression: str) -> Iterator[str]:
    known, found = labels(), uses(expression)
    for metric in sorted(found.metrics - known.keys()):
        yield f"there is no metric {metric}"
    there = frozenset().union(*(known.get(metric, frozenset()) for metric in found.metrics))
    for label in sorted(found.grouped - there):
        yield f"none of its metrics has a label {label}"
    for matcher in found.matchers:
        if matcher.label not in known.get(matcher.metric, {matcher.label}):
            yield f"{matcher.metric} has no label {matcher.label}"
        yield from _wrong_values(matcher)


def _wrong_values(matcher: Matcher) -> Iterator[str]:
    allowed = bounds()[matcher.metric] if matcher.label == "le" else VALUES.get(matcher.label)
    for value in matcher.values:
        if allowed is not None and not value.startswith("$") and value not in allowed | {""}:
            yield f"{matcher.metric} never has {matcher.label} {value!r}"
