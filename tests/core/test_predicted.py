"""Predictions have a time limit and a bound."""

from __future__ import annotations

from router.core.index import Index
from router.core.predicted import Predicted
from router.core.view import View


def predicted(index: Index, **settings: int) -> tuple[Predicted, int]:
    slot = index.take_slot()
    return Predicted(index, slot, **({"ttl": 10, "bound": 100} | settings)), slot


def test_a_prediction_ends_with_its_time() -> None:
    index = Index()
    one, slot = predicted(index)
    one.add([1], 0.0)
    one.add([2], 5.0)
    one.expire(9.9)
    assert index.match([1, 2]).reach == {slot: 2}
    one.expire(10.0)
    assert index.match([2]).reach == {slot: 1}
    one.expire(15.0)
    assert (len(one), index.predicted) == (0, {})


def test_with_no_time_to_last_nothing_is_predicted() -> None:
    index = Index()
    one, _ = predicted(index, ttl=0)
    one.add([1], 0.0)
    assert (len(one), index.predicted) == (0, {})


def test_predicting_again_gives_new_time() -> None:
    index = Index()
    one, slot = predicted(index)
    one.add([1, 2], 0.0)
    one.add([1], 5.0)
    one.expire(12.0)
    assert index.match([1]).reach == {slot: 1}
    assert len(one) == 1


def test_the_oldest_predictions_leave_over_the_bound() -> None:
    index = Index()
    one, _ = predicted(index, bound=2)
    one.add([1, 2, 3], 0.0)
    assert set(index.predicted) == {2, 3}


def test_ranks_do_not_end_each_others_predictions() -> None:
    index = Index()
    one, _ = predicted(index)
    other, slot = predicted(index)
    one.add([1], 0.0)
    other.add([1], 0.0)
    one.settle(1)
    one.settle(1)
    assert index.match([1]).reach == {slot: 1}


def test_deep_in_a_prompt_few_entries_say_where_it_reaches() -> None:
    index = Index()
    one, slot = predicted(index, bound=10_000)
    keys = list(range(1, 40_001))
    one.add(keys, 0.0)
    assert len(one) < 2500
    assert index.match(keys).reach == {slot: 40_000}
    assert index.match(keys[:1000]).reach == {slot: 1000}
    assert index.match([*keys[:20_000], *range(50_000, 51_000)]).reach == {slot: 20_000}
    one.settle_all(keys)
    assert (len(one), index.predicted) == (0, {})


def test_a_prediction_may_begin_anywhere() -> None:
    keys = list(range(1, 3001))
    for start in (5, 1000, 1030, 2500):
        index = Index()
        one, slot = predicted(index, bound=10_000)
        one.add(keys[:start], 0.0)
        one.add(keys[start:], 0.0, start)
        # At the end fewer than 32 blocks may be missing.
        assert index.match(keys).reach[slot] in range(3000 - 31, 3001)


def test_trust_is_lost_by_misses_comes_back_with_time_and_starts_anew_with_the_view() -> None:
    index = Index()
    view = View(index, "m", block_size=16)
    predicted = view.predicted
    predicted.learn(1.0)
    assert (predicted.trust, index.doubts) == (1.0, {})
    for _ in range(50):
        predicted.learn(0.0)
    assert predicted.trust < 0.01
    for _ in range(34):
        predicted.forgive()
    assert 0.45 < predicted.trust < 0.55
    for _ in range(200):
        predicted.forgive()
    assert (predicted.trust, index.doubts) == (1.0, {})
    predicted.learn(0.0)
    view.reset("flush")
    assert (predicted.trust, index.doubts) == (1.0, {})
    predicted.learn(0.5)
    assert index.doubts == {view.slot: 0.95}


def test_many_that_end_together_go_in_portions() -> None:
    index = Index()
    one, _ = predicted(index, bound=10_000)
    one.add(range(1, 1001), 0.0)
    one.add([2000], 5.0)
    assert [one.expire(10.0, 400) for _ in range(3)] == [400, 400, 200]
    assert (len(one), set(index.predicted)) == (1, {2000})


def test_over_the_bound_some_more_leave_at_once() -> None:
    index = Index()
    one, _ = predicted(index, bound=128)
    one.add(range(1, 130), 0.0)
    assert set(index.predicted) == set(range(4, 130))
