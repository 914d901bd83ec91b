from __future__ import annotations

from workers.engine.events import Cleared, EventQueue, Removed, Stored
from workers.engine.namespace import Namespace


def _queue(*events: Stored | Removed | Cleared, coalesces: bool = True) -> list[Stored | Removed | Cleared]:
    queue = EventQueue(coalesces)
    for event in events:
        queue.append(event)
    return queue.take()


def test_a_store_joins_the_run_it_continues() -> None:
    joined = _queue(Stored([1, 2], None, [10, 20], 1), Stored([3], 2, [30], 1))
    assert joined == [Stored([1, 2, 3], None, [10, 20, 30], 1)]


def test_a_store_elsewhere_in_the_tree_stays_apart() -> None:
    assert len(_queue(Stored([1, 2], None, [10, 20], 1), Stored([3], 1, [30], 1))) == 2


def test_stores_of_different_tiers_or_namespaces_stay_apart() -> None:
    first = Stored([1], None, [10], 1)
    assert len(_queue(first, Stored([2], 1, [20], 1, medium="CPU_PINNED"))) == 2
    assert len(_queue(first, Stored([2], 1, [20], 1, namespace=Namespace(cache_salt="s")))) == 2


def test_removals_of_one_tier_join_and_of_two_do_not() -> None:
    assert _queue(Removed([1]), Removed([2])) == [Removed([1, 2])]
    assert len(_queue(Removed([1]), Removed([2], "CPU_PINNED"))) == 2


def test_nothing_joins_across_another_event() -> None:
    assert len(_queue(Removed([1]), Stored([2], None, [5], 1), Removed([3]))) == 3
    assert len(_queue(Cleared(), Cleared())) == 2


def test_a_queue_that_does_not_coalesce_keeps_every_event() -> None:
    assert len(_queue(Removed([1]), Removed([2]), coalesces=False)) == 2
