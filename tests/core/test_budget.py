"""Retries are a share of requests and a few besides, whatever comes when."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.budget import MEMORY_SECONDS, RetryBudget

STEPS = st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 500), st.integers(0, 200)), max_size=50)


def taken(budget: RetryBudget, requests: int, now: float, most: int = 10_000) -> int:
    count = 0
    while count < most and budget.take(requests, now):
        count += 1
    return count


def test_the_floor_is_granted_before_any_request_has_come() -> None:
    assert taken(RetryBudget(0.2, 3.0, 0.0), 0, 0.0) == 3 * MEMORY_SECONDS
    assert taken(RetryBudget(0.2, 0.0, 0.0), 0, 0.0) == 0


def test_a_burst_of_requests_grants_its_share_at_once() -> None:
    assert taken(RetryBudget(0.2, 0.0, 5.0), 1000, 5.0) == 200


def test_what_is_not_used_is_forgotten() -> None:
    budget = RetryBudget(0.2, 1.0, 0.0)
    assert taken(budget, 36_000, 3600.0) == int((0.2 * 10 + 1.0) * MEMORY_SECONDS)


@given(STEPS, st.floats(0.0, 1.0), st.floats(0.0, 50.0))
def test_retries_stay_within_the_share_and_the_floor(
    steps: list[tuple[float, int, int]], share: float, floor: float
) -> None:
    budget, now, requests, retries = RetryBudget(share, floor, 0.0), 0.0, 0, 0
    for seconds, come, wanted in steps:
        now += seconds
        requests += come
        retries += taken(budget, requests, now, wanted)
        assert retries <= share * requests + floor * (now + MEMORY_SECONDS) + 1e-6 * (1 + requests)
