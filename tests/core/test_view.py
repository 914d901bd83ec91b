"""A view holds what the engine has said, and nothing it has not."""

from __future__ import annotations

from typing import Any

import pytest

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.decide import gather
from router.core.events import Cleared, Event
from router.core.index import Index
from router.core.places import MAX_TIERS
from router.core.rank import Rank
from router.core.states import MOST_TIERS
from router.core.view import View
from tests.core.frames import BLOCK_SIZE, batch, removed, stored


class Fixture:
    def __init__(self, **settings: Any) -> None:
        self.index = Index()
        self.view = View(self.index, "m", block_size=BLOCK_SIZE, **settings)
        self.rank = Rank("http://w", 0, self.view)

    def apply(self, *events: Event) -> None:
        self.view.apply(batch(*events))

    def overlap(self, tokens: list[int], **namespace: Any) -> int:
        prompt = PromptBlocks(pack_tokens(tokens), len(tokens), Namespace("m", **namespace))
        return gather(self.index, [self.rank], prompt).candidates()[0].overlap_tokens


A, B, C, D = [1] * 4, [2] * 4, [3] * 4, [4] * 4
END = [9]


def test_a_stored_prefix_counts_as_far_as_it_reaches() -> None:
    f = Fixture()
    f.apply(stored([10, 11], A + B), stored([12], C, 11))
    assert f.overlap(A + B + C + END) == 12
    assert f.overlap(A + B + D + END) == 8
    assert f.overlap(B + C + END) == 0
    assert f.view.blocks() == {"GPU": 3}


@pytest.mark.parametrize("counts_copies", [False, True])
@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 8, 9, 40])
def test_what_goes_on_where_a_store_has_ended_counts_as_if_it_had_come_at_once(
    blocks: int, *, counts_copies: bool
) -> None:
    tokens = long_prompt()
    stores = [
        stored(list(range(at + 1, at + 1 + blocks)), tokens[at * 4 : (at + blocks) * 4], at or None)
        for at in range(0, 10 * blocks, blocks)
    ]
    f = Fixture(counts_copies=counts_copies)
    others = [View(f.index, "m", block_size=BLOCK_SIZE, counts_copies=counts_copies) for _ in range(2)]
    f.apply(*stores)
    for other in others:
        other.apply(batch(*stores))
        assert other.blocks() == {"GPU": 10 * blocks}
    others[0].apply(batch(removed([3 * blocks])))
    for view, found in ((f.view, 10 * blocks), (others[0], 3 * blocks - 1), (others[1], 10 * blocks)):
        f.rank = Rank("http://w", 0, view)
        assert f.overlap([*tokens[: 40 * blocks], *END]) == 4 * found
    assert f.index.blocks == 10 * blocks


def test_over_the_bound_a_store_of_what_is_known_gives_up_what_is_too_much() -> None:
    index = Index(20)
    view = View(index, "m", block_size=BLOCK_SIZE)
    tokens = long_prompt()
    view.apply(batch(stored([99], D, tier="CPU"), removed([99], tier="CPU")))
    view.apply(batch(stored(list(range(1, 41)), tokens[:160])))
    assert index.blocks == 40
    view.apply(batch(stored([2], tokens[4:8], 1, tier="CPU")))
    assert index.blocks <= 20


def test_a_store_of_no_blocks_that_goes_on_where_another_has_ended_is_skipped() -> None:
    f = Fixture()
    f.apply(stored([10], A), stored([11], B, 10), stored([], [], 11), stored([12], C, 11))
    assert f.overlap(A + B + C + END) == 12
    assert f.view.events["skipped_misaligned"] == 1


def test_a_prompt_of_whole_blocks_cannot_use_its_last_one() -> None:
    f = Fixture()
    f.apply(stored([10, 11], A + B))
    assert f.overlap(A + B) == 4


def test_a_removed_block_no_longer_counts() -> None:
    f = Fixture()
    f.apply(stored([10, 11], A + B), removed([11]))
    assert f.overlap(A + B + END) == 4
    assert f.view.blocks() == {"GPU": 1}


def test_a_removal_of_what_is_not_held_is_harmless() -> None:
    f = Fixture()
    f.apply(removed([5]), stored([10], A), removed([10]), removed([10]), removed([10], tier="CPU"))
    assert f.overlap(A + END) == 0


def test_children_of_a_removed_parent_count_again_when_it_returns() -> None:
    f = Fixture()
    f.apply(stored([10, 11, 12], A + B + C), removed([11]))
    assert f.overlap(A + B + C + END) == 4
    f.apply(stored([11], B, 10))
    assert f.overlap(A + B + C + END) == 12


def test_a_cleared_rank_holds_nothing_in_any_tier_predicted_ones_too() -> None:
    f = Fixture()
    f.apply(stored([10], A), stored([10], A, tier="CPU_PINNED"))
    f.view.predicted.add([123], 0.0)
    f.apply(Cleared())
    assert f.overlap(A + END) == 0
    assert f.view.blocks() == {}
    assert len(f.view.predicted) == 0
    assert f.view.resets == {"all_blocks_cleared": 1}


def test_a_clear_of_the_past_empties_the_view_and_is_neither_counted_nor_told() -> None:
    told: list[str] = []
    f = Fixture(on_reset=told.append)
    f.apply(stored([10], A))
    f.view.apply(batch(Cleared()), past=True)
    assert (f.overlap(A + END), f.view.emptied, f.view.resets, told) == (0, 1, {}, [])
    f.apply(Cleared())
    assert (f.view.emptied, told) == (2, ["all_blocks_cleared"])


def test_events_after_a_clear_in_the_same_batch_count() -> None:
    f = Fixture()
    f.apply(stored([10], A), Cleared(), stored([20], B))
    assert (f.overlap(A + END), f.overlap(B + END)) == (0, 4)


def test_a_removal_clears_its_own_tier_only() -> None:
    f = Fixture()
    f.apply(stored([10], A), stored([10], A, tier="CPU_PINNED"), removed([10]))
    assert f.overlap(A + END) == 4
    f.apply(removed([10], tier="CPU_PINNED"))
    assert f.overlap(A + END) == 0


def test_an_engine_that_counts_copies_holds_a_block_until_its_last_copy_goes() -> None:
    f = Fixture(counts_copies=True)
    f.apply(stored([10], A), stored([10], A), stored([10], A))
    f.apply(removed([10]), removed([10]))
    assert f.overlap(A + END) == 4
    f.apply(removed([10]))
    assert f.overlap(A + END) == 0


def test_an_engine_with_one_node_per_content_loses_it_with_one_removal() -> None:
    f = Fixture()
    f.apply(stored([10], A), stored([10], A), removed([10]))
    assert f.overlap(A + END) == 0


@pytest.mark.parametrize("block", [10, -10, 2**64 - 1, b"\x01" * 32])
def test_hashes_are_opaque(block: int | bytes) -> None:
    f = Fixture()
    f.apply(stored([block], A), stored([7], B, block))
    assert f.overlap(A + B + END) == 8


def test_nothing_matches_across_namespaces() -> None:
    f = Fixture()
    f.apply(stored([10], A), stored([11], B, lora="ad"), stored([12], C, cache_salt="s"))
    assert f.overlap(A + END) == 4
    assert f.overlap(A + END, lora="ad") == f.overlap(A + END, cache_salt="s") == 0
    assert f.overlap(B + END) == 0
    assert f.overlap(B + END, lora="ad") == 4
    assert f.overlap(C + END) == 0
    assert f.overlap(C + END, cache_salt="s") == 4


def test_a_child_is_in_the_namespace_of_its_parent() -> None:
    f = Fixture()
    f.apply(stored([10], A, cache_salt="s"), stored([11], B, 10))
    assert f.overlap(A + B + END, cache_salt="s") == 8
    assert f.overlap(A + B + END) == 0


def test_an_orphan_counts_for_nothing_until_its_parent_comes() -> None:
    f = Fixture()
    f.apply(stored([12], C, 11), stored([11], B, 10))
    assert f.overlap(B + END) == f.overlap(C + END) == 0
    assert f.view.orphans.blocks == 2
    f.apply(stored([10], A))
    assert f.overlap(A + B + C + END) == 12
    assert f.view.orphans.blocks == 0


def test_an_orphan_that_is_removed_does_not_join() -> None:
    f = Fixture()
    f.apply(stored([11, 12], B + C, 10), removed([12]), stored([10], A))
    assert f.overlap(A + B + C + END) == 8


def test_orphans_are_bounded() -> None:
    f = Fixture(orphan_bound=2)
    f.apply(stored([11], B, 10), stored([21], B, 20), stored([31], B, 30))
    assert f.view.orphans.blocks == 2
    f.apply(stored([10], A), stored([30], D))
    assert (f.overlap(A + B + END), f.overlap(D + B + END)) == (4, 8)


def test_orphans_are_bounded_in_bytes_whatever_the_size_of_their_blocks() -> None:
    f = Fixture()
    for at in range(70):
        f.apply(stored([2 * at + 1], [at] * (1 << 18), 2 * at, block_size=1 << 18))
    assert f.view.orphans.blocks == 64
    f.apply(stored([0], A), stored([138], B))
    assert f.view.orphans.blocks == 63


def test_only_full_attention_says_that_a_prefix_is_usable() -> None:
    f = Fixture()
    f.apply(stored([10], A, kind="sliding_window", group=1), stored([11], B, kind="full_attention"))
    f.apply(removed([11], group=1))
    assert (f.overlap(A + END), f.overlap(B + END)) == (0, 4)
    assert f.view.events["skipped_group"] == 2


def test_tokens_that_do_not_divide_over_the_blocks_are_counted_and_skipped() -> None:
    f = Fixture()
    f.apply(stored([10, 11], A), stored([12], [1] * 5))
    assert f.view.blocks() == {}
    assert f.view.events["skipped_misaligned"] == 2


def test_a_placeholder_lends_its_tier_to_a_known_block_only() -> None:
    f = Fixture()
    f.apply(stored([10], A), stored([10, 99], [], tier="CPU", block_size=0), removed([10]))
    assert f.overlap(A + END) == 4
    assert f.view.events["skipped_placeholder"] == 1


def test_the_number_of_tiers_is_bounded() -> None:
    f = Fixture()
    f.apply(*(stored([10], A, tier=f"T{n}") for n in range(MAX_TIERS + 3)))
    assert len(f.view.blocks()) == MAX_TIERS


def test_names_of_tiers_are_bounded_over_all_ranks_and_resets() -> None:
    index = Index()
    views = [View(index, "m", block_size=BLOCK_SIZE) for _ in range(3)]
    for number in range(100):
        for view in views:
            view.apply(batch(stored([1], A, tier=f"T{number}{view.slot}"), stored([2], B)))
            view.reset("restart")
    assert len(index.states.planes) == MOST_TIERS
    assert views[0].events["skipped_tier"] > 0
    views[0].apply(batch(stored([1], A), stored([1], A, tier="CPU")))
    assert views[0].blocks()["GPU"] == 1


def test_the_block_size_is_learnt_from_events() -> None:
    f = Fixture()
    f.apply(stored([10], A + B, block_size=8))
    assert f.view.block_size == 8
    assert f.overlap(A + B + END) == 8


def test_a_bigram_page_matches_a_prompt_that_covers_it() -> None:
    f = Fixture(bigram=True)
    f.apply(stored([10], [1, 2, 3, 4, 5], bigram=True))
    assert f.overlap([1, 2, 3, 4, 5]) == 4
    assert f.overlap([1, 2, 3, 4, 6, 7]) == 0


def test_an_event_settles_what_was_predicted() -> None:
    f = Fixture()
    prompt = PromptBlocks(pack_tokens(A + B + END), 9, Namespace("m"))
    f.view.predicted.add(prompt.keys(BLOCK_SIZE, bigram=False), 0.0)
    assert f.overlap(A + B + END) == 8
    f.apply(stored([10], A), removed([10]))
    assert f.overlap(A + B + END) == 0
    assert len(f.view.predicted) == 1


def test_a_report_of_what_is_held_is_no_new_copy() -> None:
    f = Fixture(counts_copies=True)
    f.view.apply(batch(stored([10, 11], A + B), ts=1.0))
    f.view.apply(batch(stored([10, 11, 12], A + B + C), ts=9.0))
    assert f.overlap(A + B + C + END) == 12
    f.view.apply(batch(removed([12, 11, 10]), ts=9.5))
    assert f.overlap(A + END) == 0


def test_copies_decoded_at_once_are_counted_at_any_distance_from_the_root() -> None:
    f = Fixture(counts_copies=True)
    f.view.apply(batch(stored([10], A), stored([11], B, 10), ts=1.0))
    f.view.apply(batch(stored([11], B, 10), ts=50.0))
    f.apply(removed([11]))
    assert f.overlap(A + B + END) == 8
    f.apply(removed([11]))
    assert f.overlap(A + B + END) == 4


def test_a_prompt_found_less_cached_than_claimed_loses_the_rest() -> None:
    f = Fixture(counts_copies=True)
    f.apply(stored([10, 11, 12], A + B + C), stored([12], C, 11), stored([12], C, 11, tier="CPU"))
    prompt = PromptBlocks(pack_tokens(A + B + C + D + END), 17, Namespace("m"))
    keys = prompt.keys(BLOCK_SIZE, bigram=False)
    f.view.predicted.add(keys[3:], 0.0)
    assert f.overlap(A + B + C + D + END) == 16
    f.view.contradict(keys, 1)
    assert f.overlap(A + B + C + D + END) == 4
    assert (f.view.blocks(), len(f.view.predicted)) == ({"GPU": 1, "CPU": 0}, 0)
    assert f.view.events["contradicted"] == 2
    f.apply(stored([11, 12], B + C, 10))
    assert f.overlap(A + B + C + END) == 12


def test_with_several_full_attention_groups_a_block_counts_when_each_holds_it() -> None:
    f = Fixture()
    full: dict[str, Any] = {"kind": "full_attention"}
    f.apply(stored([10, 11], A + B, **full), stored([10], A, group=3, kind="mla_attention"))
    assert f.overlap(A + B + END) == 4
    f.apply(stored([11], B, 10, group=3, **full), stored([11], B, 10, tier="CPU", **full))
    assert f.overlap(A + B + END) == 8
    f.apply(removed([11]))
    assert f.overlap(A + B + END) == 8
    f.apply(removed([10], group=3))
    assert f.overlap(A + B + END) == 0
    f.apply(Cleared(), stored([10], A, **full))
    assert f.overlap(A + END) == 4


def test_hashes_that_other_ranks_use_for_other_content_are_kept_apart() -> None:
    index = Index()
    views = [View(index, "m", block_size=BLOCK_SIZE) for _ in range(3)]
    views[0].apply(batch(stored([10, 11], A + B)))
    views[1].apply(batch(stored([10, 11], C + D)))
    views[2].apply(batch(stored([20, 21], A + B)))
    assert [view.resets["hash_conflict"] for view in views] == [0, 1, 1]
    ranks = [Rank("http://w", number, view) for number, view in enumerate(views)]

    def overlaps(tokens: list[int]) -> list[int]:
        prompt = PromptBlocks(pack_tokens(tokens), len(tokens), Namespace("m"))
        return [found.overlap_tokens for found in gather(index, ranks, prompt).candidates()]

    assert (overlaps(A + B + END), overlaps(C + D + END)) == ([8, 0, 8], [0, 8, 0])
    for view, last in zip(views, (11, 11, 21), strict=True):
        view.apply(batch(removed([last])))
    assert (overlaps(A + B + END), overlaps(C + D + END)) == ([4, 0, 4], [0, 4, 0])


def test_that_a_conflict_of_hashes_has_cost_blocks_is_told() -> None:
    index, told = Index(), []
    peer = View(index, "m", block_size=BLOCK_SIZE)
    peer.apply(batch(stored([10], D)))
    for first in ([], [stored([1], A)]):
        view = View(index, "m", block_size=BLOCK_SIZE, on_loss=lambda: told.append(1))
        view.apply(batch(*first, stored([10], C)))
        assert view.resets == {"hash_conflict": 1}
        assert len(told) == len(first)


def test_a_hash_that_only_a_view_of_the_past_used_otherwise_is_no_conflict() -> None:
    f = Fixture()
    f.apply(stored([10, 11 ^ 1 << 56], A + B))
    f.apply(Cleared(), stored([10, 11], A + B))
    assert f.overlap(A + B + END) == 8
    f.apply(stored([11 ^ 1 << 56], C, 11), removed([11 ^ 1 << 56]))
    assert f.overlap(A + B + C + END) == 8
    f.apply(Cleared(), stored([10, 99], A + B))
    f.apply(Cleared(), stored([10, 11], A + B), stored([99], C))
    assert f.view.resets == {"all_blocks_cleared": 3}
    assert (f.overlap(A + B + END), f.overlap(C + END)) == (8, 4)
    f.apply(removed([11]))
    assert (f.overlap(A + B + END), f.overlap(C + END)) == (4, 4)
    f.apply(removed([99]))
    assert (f.overlap(A + B + END), f.overlap(C + END)) == (4, 0)


def test_adapters_of_the_same_number_on_two_ranks_are_kept_apart() -> None:
    index = Index()
    views = [View(index, "m", block_size=BLOCK_SIZE) for _ in range(2)]
    views[0].apply(batch(stored([10], A, lora="x")))
    views[1].apply(batch(stored([10], A, lora="y"), stored([11], B, 10, lora="y")))
    assert [view.resets["hash_conflict"] for view in views] == [0, 0]
    views[0].apply(batch(removed([10])))
    prompt = PromptBlocks(pack_tokens(A + B + END), 9, Namespace("m", "y"))
    ranks = [Rank("http://w", number, view) for number, view in enumerate(views)]
    assert [found.overlap_tokens for found in gather(index, ranks, prompt).candidates()] == [0, 8]


LONG = [n % 1000 for n in range(5000)]


def long_prompt() -> list[int]:
    return [block for block in LONG for _ in range(BLOCK_SIZE)]


def test_a_large_event_is_applied_in_pieces_and_in_order() -> None:
    f = Fixture()
    f.apply(stored(list(range(5000)), long_prompt()), removed(list(range(4990, 5000))), stored([9000], D))
    assert 0 < f.overlap([*long_prompt(), *END]) < 4096 * BLOCK_SIZE
    assert f.overlap(D + END) == 0
    while f.index.sweep(1000):
        pass
    assert f.overlap([*long_prompt(), *END]) == 4990 * BLOCK_SIZE
    assert f.overlap(D + END) == 4
    f.apply(removed(list(range(4990))))
    while f.index.sweep(1000):
        pass
    assert f.view.blocks() == {"GPU": 1}
    assert f.view.events == {"stored": 2, "removed": 2}


def test_a_long_prompt_that_is_contradicted_counts_no_more_at_once() -> None:
    f = Fixture()
    f.apply(stored(list(range(5000)), long_prompt()))
    while f.index.sweep(1000):
        pass
    keys = PromptBlocks(pack_tokens(long_prompt()), 20_000, Namespace("m")).keys(BLOCK_SIZE, bigram=False)
    f.view.contradict(keys, 100)
    assert f.overlap([*long_prompt(), *END]) == 400
    f.apply(stored([100], long_prompt()[400:404], 99))
    while f.index.sweep(1000):
        pass
    assert f.view.blocks() == {"GPU": 101}
    assert f.view.events["contradicted"] == 4900


def test_a_long_line_of_parents_without_holders_goes_in_portions() -> None:
    f = Fixture()
    f.apply(stored([0], long_prompt()[:4]))
    for at in range(1, 2000):
        f.apply(stored([at], long_prompt()[4 * at : 4 * at + 4], at - 1))
    for at in range(2000):
        f.apply(removed([at]))
    assert f.index.blocks > 1000
    while f.index.sweep(1000):
        pass
    assert f.index.blocks == 0


def test_a_clear_does_not_wait_for_what_came_before_it() -> None:
    f = Fixture()
    f.apply(stored(list(range(5000)), long_prompt()))
    f.apply(Cleared(), stored([9000], D))
    while f.index.sweep(1000):
        assert f.overlap([*long_prompt(), *END]) == 0
    assert f.view.blocks() == {"GPU": 1}


def test_of_a_batch_only_what_came_after_its_last_clear_counts() -> None:
    f = Fixture()
    f.apply(stored([1], A), Cleared(), stored([2], B), Cleared(), Cleared(), stored([3], C))
    assert f.view.blocks() == {"GPU": 1}
    assert [f.overlap(tokens + END) for tokens in (A, B, C)] == [0, 0, 4]
    assert f.view.resets == {"all_blocks_cleared": 1}
    assert f.view.events == {"stored": 3, "cleared": 3}


def test_a_rank_that_clears_what_is_empty_leaves_nothing_to_sweep() -> None:
    f = Fixture()
    f.apply(Cleared())
    slot = f.view.slot
    for _ in range(1000):
        f.apply(Cleared(), Cleared())
    assert (f.view.slot, f.view.resets["all_blocks_cleared"]) == (slot, 1001)
    assert not f.index.sweep(1)


def test_a_store_of_no_blocks_says_nothing_of_their_size() -> None:
    f = Fixture()
    f.apply(
        stored([1], A), stored([], [], block_size=2**62), stored([], [], 1, block_size=1), stored([2], B, 1)
    )
    assert f.overlap(A + B + END) == 8
    assert (f.view.block_size, f.view.events["skipped_misaligned"]) == (BLOCK_SIZE, 2)


def test_a_long_chain_of_orphans_joins() -> None:
    f = Fixture()
    prompt = long_prompt()
    for at in range(4999, 0, -1):
        f.apply(stored([at], prompt[4 * at : 4 * at + 4], at - 1))
    f.apply(stored([0], prompt[:4]))
    while f.index.sweep(1000):
        pass
    assert f.overlap([*prompt, *END]) == 20_000
    assert f.view.orphans.blocks == 0


def test_ranks_of_different_block_sizes_share_an_index() -> None:
    index = Index()
    views = [View(index, "m", block_size=size) for size in (1, 4, 8)]
    tokens = A + B + C + D
    for view, size in zip(views, (1, 4, 8), strict=True):
        count = len(tokens) // size
        view.apply(batch(stored(list(range(count)), tokens, block_size=size)))
    prompt = PromptBlocks(pack_tokens(tokens[:13]), 13, Namespace("m"))
    ranks = [Rank("http://w", number, view) for number, view in enumerate(views)]
    assert [found.overlap_tokens for found in gather(index, ranks, prompt).candidates()] == [12, 12, 8]


def test_extra_keys_for_fewer_blocks_than_stored_are_skipped() -> None:
    f = Fixture()
    f.apply(stored([10, 11], A + B, extras=[b"x"]))
    assert (f.view.blocks(), f.view.events["skipped_misaligned"]) == ({"GPU": 0}, 1)


def test_one_block_that_others_hold_is_held_by_those_who_store_it_too() -> None:
    index = Index()
    views = [View(index, "m", block_size=BLOCK_SIZE) for _ in range(3)]
    for view in views:
        view.apply(batch(stored([1], A), stored([2], B, 1), stored([3], C, 1), stored([2], B, 1)))
    assert [view.blocks() for view in views] == [{"GPU": 3}] * 3
    assert index.blocks == 3
    views[0].apply(batch(removed([2])))
    views[1].apply(batch(stored([9], B, 1)))
    assert [view.resets["hash_conflict"] for view in views] == [0, 1, 0]
    prompt = PromptBlocks(pack_tokens(A + B + END), 9, Namespace("m"))
    ranks = [Rank("http://w", number, view) for number, view in enumerate(views)]
    assert [found.overlap_tokens for found in gather(index, ranks, prompt).candidates()] == [4, 0, 8]


def test_a_parent_that_is_gone_is_not_followed() -> None:
    f = Fixture()
    f.apply(stored([1, 2], A + B), removed([2]), stored([3], C, 2))
    assert f.view.events["orphaned"] == 1
    assert f.overlap(A + B + C + END) == 4
    f.apply(stored([2], B, 1))
    assert f.overlap(A + B + C + END) == 12


def test_a_rank_that_leaves_the_shared_hashes_leaves_none_of_its_own_there() -> None:
    index = Index()
    views = [View(index, "m", block_size=BLOCK_SIZE) for _ in range(3)]
    views[0].apply(batch(stored([1], B)))
    for view in views[1:]:
        view.apply(batch(stored([1], A), stored([2], C, 1)))
    assert [view.resets["hash_conflict"] for view in views] == [0, 1, 1]
    prompt = PromptBlocks(pack_tokens(A + C + END), 9, Namespace("m"))
    ranks = [Rank("http://w", number, view) for number, view in enumerate(views)]
    assert [found.overlap_tokens for found in gather(index, ranks, prompt).candidates()] == [0, 8, 8]
