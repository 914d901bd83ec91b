"""The index: prefix overlap of all ranks at once, O(1) resets, nothing left behind, never too much."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.index import Index
from router.core.view import View
from tests.core.frames import BLOCK_SIZE, batch, removed, stored

if TYPE_CHECKING:
    from array import array

    from router.core.events import Hash


def view(index: Index, *, copies: bool = False) -> View:
    return View(index, "m", block_size=BLOCK_SIZE, counts_copies=copies)


def tokens_of(blocks: list[int]) -> list[int]:
    return [block for block in blocks for _ in range(BLOCK_SIZE)]


def keys_of(blocks: list[int]) -> array[int]:
    tokens = tokens_of(blocks)
    return PromptBlocks(pack_tokens(tokens), len(tokens), Namespace("m")).keys(BLOCK_SIZE, bigram=False)


def hold(one: View, blocks: list[int], *, tier: str = "GPU") -> None:
    """Store a prompt whose block hashes are the numbers of its prefixes."""
    hashes: list[Hash] = [hash_of(blocks[: end + 1]) for end in range(len(blocks))]
    one.apply(batch(stored(hashes, tokens_of(blocks), tier=tier)))


def hash_of(blocks: list[int]) -> int:
    return int.from_bytes(bytes([1, *blocks]), "big")


def sweep(index: Index, portion: int = 3) -> None:
    while index.sweep(portion):
        pass


def test_each_rank_is_matched_as_far_as_it_holds() -> None:
    index = Index()
    views = [view(index) for _ in range(3)]
    for depth, one in enumerate(views):
        hold(one, [1, 2, 3][: depth + 1])
    found = index.match(keys_of([1, 2, 3]))
    assert found.held == {views[0].slot: 1, views[1].slot: 2, views[2].slot: 3}


def test_keys_may_come_as_any_numbers() -> None:
    index = Index()
    one = view(index)
    hold(one, [1, 2])
    assert index.match(list(keys_of([1, 2, 3]))).held == {one.slot: 2}


@pytest.mark.parametrize("step", [1, 7, 100, 1000])
def test_a_long_prompt_is_matched_however_it_was_stored(step: int) -> None:
    index = Index()
    views = [view(index) for _ in range(20)]
    blocks = [n % 250 for n in range(1000)]
    hashes: list[Hash] = list(range(10, 1010))
    for at in range(0, 1000, step):
        for number, one in enumerate(views):
            end = min(at + step, 1000 - 40 * number)
            if at < end:
                parent = hashes[at - 1] if at else None
                one.apply(batch(stored(hashes[at:end], tokens_of(blocks[at:end]), parent)))
    sweep(index)
    expected = {one.slot: 1000 - 40 * number for number, one in enumerate(views)}
    assert index.match(keys_of(blocks)).held == expected
    views[0].apply(batch(removed([hashes[500]])))
    assert index.match(keys_of(blocks)).held == expected | {views[0].slot: 500}
    other = [*blocks[:700], 251, *blocks[701:]]
    assert index.match(keys_of(other)).held[views[1].slot] == 700


def test_a_tier_below_the_device_counts_only_where_the_device_lacks_the_block() -> None:
    index = Index()
    one = view(index)
    hold(one, [1, 2])
    hold(one, [1, 2, 3], tier="CPU_PINNED")
    found = index.match(keys_of([1, 2, 3]))
    assert found.held == {one.slot: 3}
    assert found.lower == {"CPU_PINNED": {one.slot: 1}}


def test_predicted_blocks_extend_what_is_held() -> None:
    index = Index()
    one, other = view(index), view(index)
    hold(one, [1])
    keys = keys_of([1, 2, 3])
    one.predicted.add(keys[1:2], 0.0)
    other.predicted.add(keys[:1], 0.0)
    found = index.match(keys)
    assert found.held == {one.slot: 1}
    assert found.reach == {one.slot: 2, other.slot: 1}


def test_a_reset_view_stops_matching_before_anything_is_swept() -> None:
    index = Index()
    one = view(index)
    hold(one, [1])
    one.reset("test")
    assert index.match(keys_of([1])).reach == {}
    hold(one, [1])
    assert index.match(keys_of([1])).reach == {one.slot: 1}
    sweep(index)
    assert index.match(keys_of([1])).reach == {one.slot: 1}


def test_the_index_says_when_there_is_something_to_sweep() -> None:
    calls = []
    index = Index(wake=lambda: calls.append(1))
    one = view(index)
    hold(one, [1])
    assert not calls
    one.reset("test")
    assert calls


@pytest.mark.parametrize("copies", [False, True])
def test_a_swept_slot_is_used_again_and_closed_views_leave_nothing(copies: bool) -> None:
    index = Index()
    for _ in range(100):
        one = view(index, copies=copies)
        hold(one, [1, 2])
        hold(one, [1, 2])
        hold(one, [1], tier="CPU")
        one.predicted.add([5, 6], 0.0)
        one.close()
        sweep(index)
        assert one.slot == 0
    assert (index.blocks, index.predicted, len(index.states), index.holders) == (0, {}, 1, {})


def test_a_thousand_workers_that_come_and_go_leave_no_memory_behind() -> None:
    index = Index()
    stays = view(index)
    hold(stays, [9, 9])
    most = 0
    for number in range(1000):
        one = view(index)
        hold(one, [number % 256, number // 256, *range(30)])
        if number % 50:
            one.close()
        else:
            one.reset("test")
            one.close()
        sweep(index, 500)
        most = max(most, index.nbytes())
        assert index.blocks == 2
    assert most < 250_000
    assert index.match(keys_of([9, 9])).held == {stays.slot: 2}


def test_over_the_bound_the_tails_of_the_prefixes_matched_longest_ago_go() -> None:
    index = Index(max_blocks=12)
    one = view(index)
    for prompt in (1, 2, 3):
        hold(one, [prompt, *range(10, 13)])
    index.match(keys_of([1, 10, 11, 12]))
    hold(one, [4, 10])
    depths = [index.match(keys_of([prompt, 10, 11, 12])).held.get(one.slot, 0) for prompt in (1, 2, 3, 4)]
    assert depths == [4, 2, 4, 2]
    assert (index.blocks, index.evicted) == (12, 2)
    assert one.blocks() == {"GPU": 12}


def test_a_block_that_was_given_up_is_held_again_when_it_is_stored_again() -> None:
    index = Index(max_blocks=4)
    one, other = view(index), view(index)
    for prompt in (1, 2, 1):
        for each in (one, other):
            hold(each, [prompt, 10, 11, 12])
    assert index.match(keys_of([1, 10, 11, 12])).held == {one.slot: 4, other.slot: 4}
    assert index.match(keys_of([2, 10, 11, 12])).held == {}
    one.apply(batch(removed([hash_of([2]), hash_of([1, 10, 11, 12])])))
    assert index.match(keys_of([1, 10, 11, 12])).held == {one.slot: 3, other.slot: 4}


def test_what_a_contradiction_has_emptied_leaves_no_state_behind() -> None:
    index = Index()
    one = view(index)
    one.apply(batch(stored([1], list(range(4)))))
    prompt = PromptBlocks(pack_tokens(range(5)), 5, Namespace("m"))
    one.contradict(prompt.keys(BLOCK_SIZE, bigram=False), 0)
    one.close()
    sweep(index)
    assert (index.blocks, len(index.states)) == (0, 1)


def test_the_lowest_free_slot_is_taken_so_that_masks_are_narrow_again_after_a_storm() -> None:
    index = Index()
    views = [View(index, "m", block_size=BLOCK_SIZE) for _ in range(300)]
    for view in views:
        view.apply(batch(stored([1], [1] * BLOCK_SIZE)))
    for view in views[1:]:
        view.close()
    while index.sweep(1000):
        pass
    views[0].reset("restart")
    assert views[0].slot == 1
