"""The index: prefix overlap of all ranks at once, O(1) resets, nothing left behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from router.core.index import Index
from router.core.view import View
from tests.core.frames import BLOCK_SIZE, batch, removed, stored


def view(index: Index) -> View:
    return View(index, "m", block_size=BLOCK_SIZE)


def sweep(index: Index) -> None:
    while index.sweep(3):
        pass


def test_each_rank_is_matched_as_far_as_it_holds() -> None:
    index = Index()
    views = [view(index) for _ in range(3)]
    for depth, one in enumerate(views, 1):
        one.apply(batch(stored(list(range(1, depth + 1)), list(range(4 * depth)))))
    keys = list(views[2]._held["GPU"].values())
    assert index.match(keys).held == {views[0].slot: 1, views[1].slot: 2, views[2].slot: 3}


def test_a_tier_below_the_device_counts_only_where_the_device_lacks_the_block() -> None:
    index = Index()
    one = view(index)
    one.apply(batch(stored([1, 2], list(range(8))), stored([1, 2, 3], list(range(12)), tier="CPU_PINNED")))
    keys = list(one._held["CPU_PINNED"].values())
    found = index.match(keys)
    assert found.held == {one.slot: 3}
    assert found.lower == {"CPU_PINNED": {one.slot: 1}}


def test_predicted_blocks_extend_what_is_held() -> None:
    index = Index()
    one, other = view(index), view(index)
    one.apply(batch(stored([1], list(range(4)))))
    key = one._held["GPU"][1]
    one.predicted.add([77], 0.0)
    other.predicted.add([key], 0.0)
    found = index.match([key, 77, 78])
    assert found.held == {one.slot: 1}
    assert found.reach == {one.slot: 2, other.slot: 1}


def test_a_reset_view_stops_matching_before_anything_is_swept() -> None:
    index = Index()
    one = view(index)
    one.apply(batch(stored([1], list(range(4)))))
    keys = list(one._held["GPU"].values())
    one.reset("test")
    assert index.match(keys).reach == {}
    one.apply(batch(stored([1], list(range(4)))))
    assert index.match(keys).reach == {one.slot: 1}
    sweep(index)
    assert index.match(keys).reach == {one.slot: 1}


def test_a_swept_slot_is_used_again_and_closed_views_leave_nothing() -> None:
    index = Index()
    for _ in range(100):
        one = view(index)
        one.apply(batch(stored([1, 2], list(range(8))), stored([1], list(range(4)), tier="CPU")))
        one.predicted.add([5, 6], 0.0)
        one.close()
        sweep(index)
        assert one.slot == 0
    assert index.tiers == {"GPU": {}, "CPU": {}}
    assert index.predicted == {}


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["store", "remove", "reset", "sweep"]), st.integers(0, 2), st.integers(0, 15)),
    max_size=60,
)


def path(block: int) -> list[int]:
    """Block n's prefix in a binary tree of 16: its ancestors and itself."""
    return [*path((block - 1) // 2), block] if block else [0]


@given(OPERATIONS)
def test_the_index_equals_a_set_per_rank_after_any_operations(operations: list[tuple[str, int, int]]) -> None:
    index = Index()
    views = [view(index) for _ in range(3)]
    oracle: list[set[int]] = [set() for _ in views]
    keys: dict[int, int] = {}
    for name, rank, block in operations:
        blocks = path(block)
        if name == "store":
            views[rank].apply(batch(stored(list(blocks), [b for n in blocks for b in [n] * 4])))
            oracle[rank] |= set(blocks)
            keys |= {b: views[rank]._held["GPU"][b] for b in blocks}
        elif name == "remove":
            views[rank].apply(batch(removed([block])))
            oracle[rank].discard(block)
        elif name == "reset":
            views[rank].reset("test")
            oracle[rank].clear()
        else:
            index.sweep(5)
    for block in keys:
        blocks = path(block)
        found = index.match([keys[b] for b in blocks])
        for one, held in zip(views, oracle, strict=True):
            depth = next((d for d, b in enumerate(blocks) if b not in held), len(blocks))
            assert found.held.get(one.slot, 0) == depth
