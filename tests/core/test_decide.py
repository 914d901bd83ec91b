"""The facts of a decision: what each rank would have to compute, kept right while ranks change."""

from __future__ import annotations

import pytest

from router.core.cost import POLICIES
from router.core.decide import gather, predict
from tests.core.board import Board
from tests.core.frames import batch, stored


def overlaps(board: Board) -> list[int]:
    return [found.overlap_tokens for found in gather(board.index, board.ranks, board.prompt).candidates()]


def test_the_columns_say_what_the_candidates_say() -> None:
    board = Board(400)
    board.add("none")
    board.add("half", held=208)
    board.add("all", held=400)
    facts = board.facts()
    assert facts.uncached == [400, 192, 16]
    assert [found.uncached_tokens for found in facts.candidates()] == facts.uncached


def test_ranks_with_other_block_sizes_are_matched_by_their_own() -> None:
    board = Board(400)
    for name, size, held in (("a", 16, 160), ("b", 32, 320), ("c", 16, 32), ("d", 64, 0)):
        board.add(name, held=held, block_size=size)
    assert board.facts().uncached == [240, 80, 368, 400]
    assert overlaps(board) == [160, 320, 32, 0]


@pytest.mark.parametrize("others", [0, 9])
def test_a_view_that_begins_anew_is_not_taken_for_what_it_was(others: int) -> None:
    board = Board(400)
    rank = board.add("a", held=320)
    for number in range(others):
        board.add(f"other-{number}")
    ranks = board.ranks
    assert board.facts().uncached[0] == 80
    rank.view.reset("flush")
    assert board.facts().uncached[0] == 400
    board.hold(rank, 160)
    assert board.facts().uncached[0] == 240
    assert board.ranks is ranks


def test_a_block_size_that_an_event_shows_counts_from_then_on() -> None:
    board = Board(400)
    rank = board.add("a")
    rank.view.block_size = None
    board.index.lineups.clear()
    assert board.facts().uncached == [400]
    rank.view.apply(batch(stored([1, 2], board.tokens[:64], block_size=32)))
    assert board.facts().uncached == [336]


def test_some_of_the_ranks_have_the_facts_that_they_have_among_all() -> None:
    board = Board(400)
    board.add("a", held=160)
    board.add("b", held=320, tier="CPU_PINNED")
    board.add("c")
    some = board.facts().only([2, 1])
    assert [rank.worker for rank in some.ranks] == ["c", "b"]
    assert some.uncached == [400, 80]
    assert some.lower == {"CPU_PINNED": {1: 320}}
    assert some.candidate(1).cached_tokens == 320


def test_a_list_that_is_made_for_one_request_leaves_the_others_known() -> None:
    board = Board(400)
    for name in "abc":
        board.add(name, held=160)
    for _ in range(200):
        few = board.ranks[:2]
        assert gather(board.index, few, board.prompt).uncached == [240, 240]
        assert board.facts().uncached == [240, 240, 240]


def test_an_adapter_is_noted_where_the_engine_stores_something_of_it_whoever_has_asked() -> None:
    ranks = Board(lora="poet")
    ranks.add("a", held=160)
    assert ranks.ranks[0].adapters == ["poet"]


def test_an_adapter_is_noted_where_a_request_for_it_goes_also_when_nothing_is_known_of_its_prompt() -> None:
    board = Board(400, lora="poet")
    rank = board.add("a")
    board.prompt.tokens = b""
    predict(board.facts().candidate(0), board.prompt, 0.0)
    assert rank.adapters == ["poet"]


def test_the_adapters_of_a_rank_are_bounded_the_latest_first() -> None:
    rank = Board().add("a")
    for number in range(200):
        rank.note_adapter(f"adapter-{number}")
    rank.note_adapter("adapter-190")
    assert rank.adapters[:3] == ["adapter-190", "adapter-199", "adapter-198"]
    assert len(rank.adapters) == 64


def test_no_rank_at_all_is_an_error_of_the_caller() -> None:
    board = Board()
    with pytest.raises(ValueError, match="min"):
        board.chosen(POLICIES["kv"])
