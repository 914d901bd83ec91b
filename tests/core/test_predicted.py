"""Predictions have a time limit and a bound."""

from __future__ import annotations

from router.core.index import Index
from router.core.predicted import Predicted


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
