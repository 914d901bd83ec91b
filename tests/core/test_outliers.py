"""Whoever fails far more often than its peers is found, and never so many that the rest would not do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.breaker import Breaker, BreakerRules, BreakerState, Failure
from router.core.outliers import outlier

RULES = BreakerRules(failures=0, share=0.0)


def worker(good: int, bad: int) -> Breaker:
    breaker = Breaker(RULES)
    breaker.good += good
    for _ in range(bad):
        breaker.failed(Failure.STATUS, 1.0)
    return breaker


def test_the_worst_of_several_is_found() -> None:
    fleet = [worker(80, 1), worker(50, 50), worker(60, 40), worker(80, 0)]
    assert outlier(fleet, 1.5) is fleet[1]


def test_nobody_stands_out_where_all_fail_alike_or_hardly_at_all_or_too_little_is_known() -> None:
    assert outlier([worker(60, 40), worker(70, 30), worker(65, 35)], 5.0) is None
    assert outlier([worker(95, 5), worker(100, 0)], 5.0) is None
    assert outlier([worker(0, 19), worker(100, 0)], 5.0) is None
    assert outlier([worker(50, 50), worker(0, 0)], 5.0) is None


def test_a_ratio_of_nought_turns_it_off() -> None:
    assert outlier([worker(0, 100), worker(100, 0)], 0.0) is None


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 200)), max_size=12), st.floats(0.0, 20.0))
def test_half_of_the_workers_stay_in_whatever_they_answer(
    counts: list[tuple[int, int]], ratio: float
) -> None:
    fleet = [worker(*count) for count in counts]
    while (found := outlier(fleet, ratio)) is not None:
        found.eject(2.0)
    out = sum(breaker.state is not BreakerState.CLOSED for breaker in fleet)
    assert out <= len(fleet) / 2
