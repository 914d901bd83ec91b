"""A view holds what the engine has said, and nothing it has not."""

from __future__ import annotations

from typing import Any

import pytest

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.decide import candidates
from router.core.index import Index
from router.core.rank import Rank
from router.core.view import MAX_TIERS, View
from router.core.wire import Cleared, Event
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
        return candidates(self.index, [self.rank], prompt)[0].overlap_tokens


A, B, C, D = [1] * 4, [2] * 4, [3] * 4, [4] * 4
END = [9]


def test_a_stored_prefix_counts_as_far_as_it_reaches() -> None:
    f = Fixture()
    f.apply(stored([10, 11], A + B), stored([12], C, 11))
    assert f.overlap(A + B + C + END) == 12
    assert f.overlap(A + B + D + END) == 8
    assert f.overlap(B + C + END) == 0
    assert f.view.blocks() == {"GPU": 3}


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
