"""The table of a run: a row for each test, with what it has measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pytest

_OUTCOMES = {"passed": "yes", "failed": "NO", "error": "could not be tried"}


def table(stats: Mapping[str, Sequence[pytest.TestReport]]) -> str:
    """Return it in Markdown, from a run's reports by outcome, in the order in which the tests ran."""
    reports = [(report, holds) for outcome, holds in _OUTCOMES.items() for report in stats.get(outcome, ())]
    rows = [_row(report, holds) for report, holds in sorted(reports, key=lambda each: each[0].start)]
    return "\n".join(["| What | Measured | Holds |", "| --- | --- | --- |", *rows])


def _row(report: pytest.TestReport, holds: str) -> str:
    name = report.nodeid.rpartition("::")[2].removeprefix("test_").replace("_", " ").replace("|", "/")
    measured = "; ".join(str(text) for key, text in report.user_properties if key == "measured")
    return f"| {name[:1].upper()}{name[1:]} | {measured} | {holds} |"
