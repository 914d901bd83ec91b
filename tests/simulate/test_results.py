from __future__ import annotations

import pytest

from workers.simulate.records import Record
from workers.simulate.report import listing, matrix
from workers.simulate.results import Result, Spread, quantile


def result(policy: str, mean: float, workload: str = "w", variant: str = "") -> Result:
    records = [Record(0.0, 100, 11, worker=0, cached=25, ttft=mean, seconds=mean + 1.0), Record(1.0, 50, 5)]
    return Result.of(records, [], workload=workload, policy=policy, variant=variant, workers=2)


def test_a_quantile_is_a_value_that_was_seen() -> None:
    ordered = [float(value) for value in range(1, 101)]
    assert [quantile(ordered, share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert quantile([7.0], 0.5) == 7.0


def test_a_spread_of_nothing_is_zero() -> None:
    assert Spread.of([]) == Spread()
    assert Spread.of([3.0, 1.0]) == Spread(2.0, 1.0, 3.0, 3.0, 3.0)


def test_what_never_ended_is_counted_and_in_no_mean() -> None:
    made = result("kv", 0.5)
    assert (made.requests, made.unended, made.hit_share, made.busiest) == (2, 1, 0.25, 2.0)
    assert (made.ttft.mean, made.e2e.mean) == (0.5, 1.5)
    assert made.tpot.mean == pytest.approx(0.1)
    assert made.curve[0] == made.curve[-1] == 0.5


def test_nothing_at_all_is_a_result_too() -> None:
    empty = Result.of([], [], workload="w", policy="kv", workers=2)
    assert (empty.requests, empty.hit_share, empty.busiest, empty.curve) == (0, 0.0, 0.0, [])


def test_a_listing_has_a_row_for_every_run() -> None:
    rows = listing([result("kv", 0.5), result("lmetric", 0.25, variant="events")]).splitlines()
    assert rows[1].split() == [
        "kv",
        "0.500",
        "0.500",
        "0.500",
        "0.500",
        "100.0",
        "1.50",
        "25.0%",
        "2.00x",
        "1",
    ]
    assert rows[2].startswith("lmetric: events ")
    assert len({len(row) for row in rows}) == 1


def test_a_matrix_marks_what_is_within_a_twentieth_of_the_best_of_its_column() -> None:
    made = [
        result("kv", 1.04, "a"),
        result("lmetric", 1.0, "a"),
        result("kv", 2.0, "b"),
        result("random", 1.06, "a"),
    ]
    rows = [row.split() for row in matrix(made).splitlines()]
    assert rows[0][-2:] == ["a", "b"]
    assert rows[1:] == [["kv", "1.040*", "2.000*"], ["lmetric", "1.000*", "-"], ["random", "1.060", "-"]]
