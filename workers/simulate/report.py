"""Results as tables of text."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.simulate.results import Result

_HEAD = ("TTFT mean", "p50", "p90", "p99", "TPOT ms", "e2e mean", "cached", "busiest", "unended")


def listing(results: Sequence[Result]) -> str:
    """Return a row for every run, times in seconds: what one workload shows."""
    rows = [(name_of(result), *_numbers(result)) for result in results]
    return _lines([("", *_HEAD), *rows])


def matrix(results: Sequence[Result]) -> str:
    """Return mean TTFT in seconds, a row for every policy or variant, a column for every workload.

    `*` marks the least of a column, and what is within 5 % of it.
    """
    columns = list(dict.fromkeys(result.workload for result in results))
    cells = {(name_of(result), result.workload): result.ttft.mean for result in results}
    best = {
        column: min(mean for (_, workload), mean in cells.items() if workload == column) for column in columns
    }
    rows = [
        (name, *(_cell(cells.get((name, column)), best[column]) for column in columns))
        for name in dict.fromkeys(name for name, _ in cells)
    ]
    return _lines([("mean TTFT, s", *columns), *rows])


def _cell(mean: float | None, best: float) -> str:
    if mean is None:
        return "-"
    return f"{mean:.3f}{'*' if mean <= 1.05 * best else ' '}"


def name_of(result: Result) -> str:
    """Return what a run is called among others of its workload."""
    return f"{result.policy}: {result.variant}" if result.variant else result.policy


def _numbers(result: Result) -> tuple[str, ...]:
    ttft = result.ttft
    seconds = (f"{value:.3f}" for value in (ttft.mean, ttft.p50, ttft.p90, ttft.p99))
    tpot, e2e = f"{result.tpot.mean * 1e3:.1f}", f"{result.e2e.mean:.2f}"
    return (*seconds, tpot, e2e, f"{result.hit_share:.1%}", f"{result.busiest:.2f}x", str(result.unended))


def _lines(rows: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [
                row[0].ljust(widths[0]),
                *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    )
