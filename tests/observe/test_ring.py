from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.observe.ring import Ring


@given(st.integers(1, 9), st.integers(0, 40), st.integers(0, 40))
def test_what_came_since_is_told_as_far_as_it_is_kept(most: int, count: int, since: int) -> None:
    ring: Ring[int] = Ring(most)
    for number in range(1, count + 1):
        ring.append(number)
    assert ring.count == count
    assert ring.since(min(since, count)) == list(range(1, count + 1))[min(since, count) :][-most:]
