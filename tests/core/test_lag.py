from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.lag import Lag


@given(st.lists(st.floats(-10, 10), min_size=1))
def test_the_shortest_and_the_longest_of_a_window_are_told(lags: list[float]) -> None:
    lag = Lag()
    for at, seconds in enumerate(lags):
        lag.add(seconds, 100 + at / 1000)
    assert (lag.last, lag.shortest, lag.longest) == (lags[-1], min(lags), max(lags))
    assert lag.early == sum(seconds < 0 for seconds in lags)


def test_before_the_first_batch_nothing_is_told() -> None:
    lag = Lag()
    assert (lag.last, lag.shortest, lag.longest, lag.early) == (None, None, None, 0)


def test_a_queue_of_long_ago_is_forgotten() -> None:
    lag = Lag()
    lag.add(5.0, 100)
    lag.add(0.1, 161)
    assert lag.longest == 5.0
    lag.add(0.2, 222)
    assert (lag.shortest, lag.longest) == (0.1, 0.2)
