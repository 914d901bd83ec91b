from __future__ import annotations

import msgspec
import pytest

from router.core.cost import POLICIES, Weights
from router.observe.decisions import MOST, Decisions
from router.observe.story import Decision
from tests.core.board import Board


def board(count: int) -> Board:
    """Return ranks of which each has ten requests more than the one before."""
    made = Board()
    for at in range(count):
        made.add(f"http://{at}", requests=10 * at)
    return made


def choice(made: Board, at: int, policy: str = "kv") -> Decision:
    facts = made.facts()
    return Decision(POLICIES[policy], Weights(), facts, facts.candidate(at), 0.0, 0.0)


def test_the_chosen_one_and_the_cheapest_others_are_kept() -> None:
    decisions = Decisions()
    decisions.room = 2
    decisions.note(b"id", "m", 1600, choice(board(20), 15))
    (one,) = decisions.ring.since(0)
    assert [offer.worker for offer in one.candidates] == ["http://15", *(f"http://{at}" for at in range(7))]
    first = one.candidates[1]
    assert (first.cost, first.uncached_tokens) == (Weights().uncached * 1600, 1600)
    assert sum(term for term in first.terms.values() if isinstance(term, float | int)) == first.cost
    assert (one.id, one.model, one.prompt_tokens, one.worker, one.ranks) == ("id", "m", 1600, "http://15", 20)
    assert one.policy == "kv"
    assert decisions.room == 1


def test_no_more_than_so_many_are_kept_and_an_id_has_an_end() -> None:
    decisions = Decisions()
    made = board(1)
    for number in range(MOST + 5):
        decisions.note(b"%d" % number + b"x" * 500, "m", 1, choice(made, 0))
    kept = decisions.ring.since(0)
    assert len(kept) == MOST
    assert all(len(one.id) == 64 for one in kept)
    assert kept[-1].id.startswith(str(MOST + 4))


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_can_be_shown(policy: str) -> None:
    made = Board()
    for at in range(3):
        made.add(f"http://{at}", held=800 * at, requests=at)
    noted = Decisions().note(b"id", "m", 1600, choice(made, 0, policy))
    assert msgspec.json.decode(msgspec.json.encode(noted), type=type(noted)) == noted
