from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from router.core.bucket import Bucket


def test_a_burst_is_given_at_once_and_then_as_much_as_comes_in() -> None:
    bucket = Bucket(rate=2, burst=3)
    assert [bucket.take(1, 10.0) for _ in range(4)] == [0, 0, 0, 0.5]
    assert bucket.take(1, 10.4) == pytest.approx(0.1)
    assert bucket.take(1, 10.6) == 0


def test_no_more_than_the_burst_is_saved_up() -> None:
    bucket = Bucket(rate=1, burst=2)
    assert bucket.take(2, 0.0) == 0
    assert [bucket.take(1, 1000.0) for _ in range(3)] == [0, 0, 1]


def test_what_is_larger_than_the_burst_is_given_when_full_and_worked_off() -> None:
    bucket = Bucket(rate=10, burst=100)
    assert bucket.take(500, 0.0) == 0
    assert bucket.take(1, 0.0) == pytest.approx(40.1)
    assert bucket.take(1, 40.2) == 0


@given(
    steps=st.lists(st.tuples(st.floats(0, 5), st.floats(0, 20)), max_size=50),
    rate=st.floats(0.1, 10),
    burst=st.floats(1, 10),
)
def test_nobody_gets_more_than_burst_and_rate_allow_but_for_one_debt(
    steps: list[tuple[float, float]], rate: float, burst: float
) -> None:
    bucket = Bucket(rate, burst)
    now = given_out = largest = 0.0
    for pause, amount in steps:
        now += pause
        if bucket.take(amount, now) == 0:
            given_out += amount
            largest = max(largest, amount)
    assert given_out <= burst + now * rate + max(0.0, largest - burst) + 1e-6


@given(rate=st.floats(0.01, 100), burst=st.floats(1, 100), amount=st.floats(0, 200))
@example(rate=1.0, burst=1.0, amount=1e-6)
def test_who_waits_as_long_as_told_gets_it(rate: float, burst: float, amount: float) -> None:
    bucket = Bucket(rate, burst)
    bucket.take(burst, 0.0)
    wait = bucket.take(amount, 0.0)
    if wait:  # what is within the tolerance is given at once
        assert bucket.take(amount, wait * (1 + 1e-9) + 1e-9) == 0
