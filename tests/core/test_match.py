"""A match says of every slot what looking at its blocks one by one would say, whichever way it is found."""

from __future__ import annotations

from array import array
from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.match import Match
from router.core.matching import measure
from router.core.predicted import EACH, STEP
from router.core.reach import Reach
from router.core.states import States
from tests.core.board import BLOCK, Board

if TYPE_CHECKING:
    from router.core.matching import Spans

SLOTS = 150


def walk(holders: list[int], predicted: list[int], slot: int, *, guess: bool) -> int:
    """Return how many blocks a slot has, each held by the slots of `holders` or predicted of them."""
    depth = 0
    for held, hoped in zip(holders, predicted, strict=True):
        if not (held | (hoped if guess else 0)) >> slot & 1:
            break
        depth += 1
    return depth


def spans_of(states: States, holders: list[int]) -> Spans:
    """Return the spans of some blocks, as far as any is known."""
    numbers = [states.keep(states.add(0, 0, mask), -1) if mask else 0 for mask in holders]
    last = [at for at, number in enumerate(numbers) if at + 1 == len(numbers) or number != numbers[at + 1]]
    return [numbers[at] for at in last], [at + 1 for at in last]


def entries(predicted: list[int], total: int) -> dict[int, int]:
    """Return the table of what is predicted of blocks whose keys are 1, 2, 3, and so on."""
    table = {at + 1: mask for at, mask in enumerate(predicted[:EACH]) if mask}
    for last in range(EACH + STEP - 1, total, STEP):
        if predicted[last]:
            table[last + 1] = predicted[last]
    return table


def blockwise(predicted: list[int]) -> list[int]:
    """Deep in a prompt one entry stands for some blocks; the last ones have none unless they are as many."""
    total = len(predicted)
    deep = [at | (STEP - 1) for at in range(EACH, total)]
    return predicted[:EACH] + [predicted[last] if last < total else 0 for last in deep]


def check(holders: list[int], predicted: list[int], live: int) -> None:
    """`holders` may know less of the prompt than all of it."""
    states, total = States(), len(predicted)
    found = Match()
    spans = spans_of(states, holders)
    measure(states, spans, live, found)
    table = entries(predicted, total)
    if table and total:
        Reach(states, spans, array("Q", range(1, total + 1)), table).extend(found, live)
    padded, hoped = holders + [0] * (total - len(holders)), blockwise(predicted)
    slots = [slot for slot in range(SLOTS) if live >> slot & 1]
    for guess, depths in ((False, found.held), (True, found.reach)):
        expected = {slot: walk(padded, hoped, slot, guess=guess) for slot in slots}
        assert depths == {slot: depth for slot, depth in expected.items() if depth}
    assert [found.of(slot) for slot in slots] == [
        (found.held.get(slot, 0), found.reach.get(slot, 0)) for slot in slots
    ]
    assert found.proven == max(found.held.values(), default=0)
    assert found.deepest == max(found.reach.values(), default=0)
    assert found.more == {slot: far for slot, far in found.reach.items() if far > found.held.get(slot, 0)}


few = st.lists(st.integers(0, 31), max_size=12)


@given(few, few, st.integers(0, 31))
def test_of_few_blocks(holders: list[int], predicted: list[int], live: int) -> None:
    total = max(len(holders), len(predicted))
    check(holders, predicted + [0] * (total - len(predicted)), live)


def prompt(rng: Random, total: int, change: float, holes: float) -> tuple[list[int], list[int]]:
    """Return holders that become fewer, with holes that are predicted or not, and what is predicted."""
    holders, predicted, here, hoped = [], [], rng.getrandbits(SLOTS), 0
    for _ in range(total):
        if rng.random() < change:
            here &= ~(1 << rng.randrange(SLOTS)) if rng.random() < 0.8 else rng.getrandbits(SLOTS)
        if rng.random() < holes:
            hoped = rng.getrandbits(SLOTS) & rng.getrandbits(SLOTS) if rng.random() < 0.7 else 0
        hole = 1 << rng.randrange(SLOTS) if rng.random() < holes else 0
        holders.append(here & ~hole)
        predicted.append(hoped | hole)
    return holders, predicted


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 1 << 32),
    st.sampled_from([200, 500, EACH - 1, EACH + 1, EACH + 3 * STEP, 1500]),
    st.sampled_from([0.0, 0.002, 0.7]),
    st.sampled_from([0.0, 0.002, 0.05]),
    st.sampled_from([0, 5, 50, 300]),
)
def test_of_many_blocks(seed: int, total: int, change: float, holes: float, unknown: int) -> None:
    rng = Random(seed)
    holders, predicted = prompt(rng, total, change, holes)
    check(holders[: max(1, total - unknown)], predicted, rng.getrandbits(SLOTS) | 1)


@pytest.mark.parametrize("depth", [0, 1, EACH - 1, EACH, EACH + 1, EACH + STEP + 5, EACH + 3 * STEP])
@pytest.mark.parametrize("end", [EACH, EACH + STEP, EACH + 3 * STEP, EACH + 4 * STEP + 7])
def test_slots_go_on_wherever_they_stop_to_hold_what_is_predicted(depth: int, end: int) -> None:
    total = EACH + 4 * STEP + 7
    check([7] * depth, [5] * end + [0] * (total - end), 7)


@pytest.mark.parametrize("tier", ["GPU", "CPU_PINNED"])
@pytest.mark.parametrize("apart", [1, 2])
def test_hundreds_of_ranks_that_all_hold_other_parts_have_the_facts_that_each_has_alone(
    apart: int, tier: str
) -> None:
    board = Board(300 * BLOCK)
    for number in range(300):
        board.add(f"r{number}", held=number * BLOCK, tier=tier if number == 200 else "GPU")
    for number in (7, 250):
        board.ranks[number].view.predicted.add(board.prompt.keys(BLOCK, bigram=False)[number:], 0.0, number)
    together = board.facts()
    board.ranks = board.ranks[::apart]
    facts = board.facts()
    assert facts.uncached == together.uncached[::apart]
    assert facts.uncached == [facts.candidate(at).uncached_tokens for at in range(len(facts.ranks))]
    for at, rank in enumerate(facts.ranks):
        board.ranks = [rank]
        alone = board.facts()
        assert alone.candidate(0) == facts.candidate(at)
        assert alone.uncached == [facts.uncached[at]]


def test_ranks_whose_views_are_closed_hold_nothing_among_hundreds_that_hold_other_parts() -> None:
    board = Board(400 * BLOCK)
    for number in range(322):
        board.add(f"r{number}", held=(322 - number) * BLOCK)
    for rank in board.ranks[-2:]:
        rank.view.close()
    assert board.facts().uncached == [(78 + at) * BLOCK for at in range(320)] + [400 * BLOCK] * 2


def test_what_is_known_of_states_is_known_anew_when_a_number_is_used_again_or_slots_become_more() -> None:
    states = States()
    for width in (3, 70, 200):
        for begin in (0, 1):
            states.start_count()
            states.end_count()
            holders = [(1 << width) - (1 << (begin + at % width)) for at in range(150)]
            states.start_count()
            found = Match()
            measure(states, spans_of(states, holders), (1 << width) - 1, found)
            slots = range(begin, width)
            assert found.held == {
                slot: walk(holders, [0] * 150, slot, guess=False) for slot in slots if holders[0] >> slot & 1
            }


def test_a_group_more_counts_also_where_holders_change_often() -> None:
    states, holders = States(), [(1 << 200) - (1 << at) for at in range(150)]
    spans = spans_of(states, holders)
    before, after = Match(), Match()
    measure(states, spans, (1 << 200) - 1, before)
    assert before.of(199) == (150, 150)
    states.group_slot(1, 1 << 199)
    measure(states, spans, (1 << 200) - 1, after)
    assert after.held == {slot: depth for slot, depth in before.held.items() if slot != 199}
