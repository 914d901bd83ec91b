from __future__ import annotations

import tracemalloc
from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from router.observe.histogram import Histogram


@given(st.lists(st.integers(-20, 20)))
def test_a_bucket_holds_the_values_up_to_its_bound(values: list[int]) -> None:
    histogram = Histogram((-5, 0, 5))
    for value in values:
        histogram.observe(value)
    assert list(accumulate(histogram.counts)) == [
        sum(v <= -5 for v in values),
        sum(v <= 0 for v in values),
        sum(v <= 5 for v in values),
        len(values),
    ]
    assert histogram.total == sum(values)


def test_observing_keeps_no_memory() -> None:
    histogram = Histogram((0.1, 1, 10))
    observed = 100_000
    tracemalloc.start()
    try:
        for _ in range(observed):
            histogram.observe(0.5)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A kept float is 24 bytes, its place in a list 8. What other threads of this process
    # allocate meanwhile is counted too, so the bound is one byte a value and not zero.
    assert kept < observed
