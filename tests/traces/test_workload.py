from __future__ import annotations

from array import array

from hypothesis import given
from hypothesis import strategies as st

from workers.traces.workload import Ask, Sync, Workload, tokens_of

segments = st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 40)), max_size=6).map(tuple)


@given(segments, st.integers(2, 1 << 20))
def test_tokens_are_within_the_vocabulary_and_as_many_as_the_segments_say(
    given_segments: tuple[tuple[int, int], ...], vocabulary: int
) -> None:
    tokens = array("I", tokens_of(given_segments, vocabulary))
    assert len(tokens) == sum(length for _, length in given_segments)
    assert all(token < vocabulary for token in tokens)


@given(st.integers(0, 1 << 40), st.integers(0, 1 << 40))
def test_segments_of_one_name_are_the_same_tokens_and_others_are_not(one: int, other: int) -> None:
    first, second = tokens_of(((one, 16),), 30_000), tokens_of(((other, 16),), 30_000)
    assert (first == second) == (one == other)
    assert first.startswith(tokens_of(((one, 7),), 30_000))


def test_a_faster_workload_is_the_same_in_less_time() -> None:
    slow = Workload("x", (Ask(1.0, ((1, 5),), 2), Ask(4.0, ((1, 5),), 2)), (Sync(2.0, 0.5),))
    fast = slow.faster(2)
    assert [ask.at for ask in fast.asks] == [0.5, 2.0]
    assert fast.syncs == (Sync(1.0, 0.5),)
    assert slow.faster(1) is slow


def test_the_first_requests_come_with_the_syncs_up_to_them() -> None:
    asks = tuple(Ask(float(at), ((1, 5),), 2) for at in range(5))
    whole = Workload("x", asks, (Sync(1.5, 0.5), Sync(3.5, 0.5)))
    assert whole.first(3) == Workload("x", asks[:3], (Sync(1.5, 0.5),))
    assert whole.first(0) is whole.first(99) is whole
