from __future__ import annotations

import multiprocessing

import pytest

from workers.simulate.jobs import JobFailed, run_all
from workers.simulate.recipe import Run
from workers.simulate.setup import Setup
from workers.traces.source import Source

SOURCE = Source(workload="groups,qps=5,seconds=4,groups=5,output=10")


def run(policy: str) -> Run:
    return Run(f"on {policy}", SOURCE, Setup(policy=policy, workers=2))


def test_results_come_in_the_order_of_the_runs() -> None:
    told: list[int] = []
    kept: list[int] = []
    runs = [*map(run, ("kv", "random", "lmetric"))]
    results = run_all(runs, 2, told.append, lambda results: kept.append(len(results)))
    assert [(result.policy, result.workload) for result in results] == [
        ("kv", "on kv"),
        ("random", "on random"),
        ("lmetric", "on lmetric"),
    ]
    assert kept == [1, 2, 3]
    assert sum(told) == sum(result.requests for result in results)
    assert not multiprocessing.active_children()


def test_a_run_that_fails_is_named_and_none_is_left_behind(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobFailed, match="the run of nonsense on on nonsense has failed"):
        run_all([*map(run, ("kv", "nonsense", "kv", "kv"))], 2, lambda _count: None, lambda _results: None)
    assert not multiprocessing.active_children()
    assert "KeyError" in capfd.readouterr().err
