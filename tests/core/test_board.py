"""Costs from columns are the costs that each rank has by itself, and columns are what the loads say."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.core.board import Board as Rows
from router.core.board import Columns
from router.core.cost import POLICIES, Weights, choose
from router.core.decide import gather
from router.core.ledger import Ledger, Load
from router.core.lineup import lineup
from tests.core.board import BLOCK, Board

if TYPE_CHECKING:
    from router.core.facts import Facts

MANY = 60
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["open", "first", "close", "peers", "engine", "forget"]),
        st.integers(0, 200),
        st.integers(0, 5000),
    ),
    max_size=60,
)


def shown(loads: list[Load]) -> list[list[float]]:
    return [
        [load.inflight_tokens, load.active_requests, load.last_dispatch, load.context_tokens]
        for load in loads
    ]


def columns_of(columns: Columns) -> list[list[float]]:
    return [list(row) for row in zip(*columns.now(), strict=True)]


@given(STEPS)
def test_columns_are_what_the_loads_say_whatever_has_happened_to_them(
    steps: list[tuple[str, int, int]],
) -> None:
    loads, ledger = [Load(inflight_tokens=at) for at in range(200)], Ledger()
    board = Rows()
    columns = [Columns(board, loads[:50]), Columns(board, loads[::-1])]
    tickets = []
    for step, at, tokens in steps:
        load = loads[at % len(loads)]
        if step == "open":
            tickets.append(ledger.open(load, tokens, 2 * tokens))
        elif step in {"first", "close"} and tickets:
            ticket = tickets[at % len(tickets)]
            ticket.first_token() if step == "first" else ticket.close()
        elif step == "peers":
            load.hear(tokens, at)
        elif step == "engine":
            load.hear_engine(tokens, at)
        elif step == "forget":
            load.forget_engine()
    assert columns_of(columns[0]) == shown(loads[:50])
    assert columns_of(columns[1]) == shown(loads[::-1])


def many(seed: int, *, predicted: bool) -> Board:
    """Return ranks that are loaded at random, some alike, some of which hold parts of the prompt."""
    rng, board = Random(seed), Board(80 * BLOCK)
    for number in range(MANY):
        board.add(
            f"r{number}",
            held=rng.choice([0, 0, rng.randrange(80) * BLOCK]),
            tier=rng.choice(["GPU", "GPU", "CPU_PINNED"]),
            tokens=rng.choice([0, rng.randrange(20_000)]),
            requests=rng.choice([0, rng.randrange(100)]),
            last_dispatch=rng.randrange(10),
            context_tokens=rng.randrange(10_000),
        )
    if predicted:
        for number in (3, 40):
            board.ranks[number].view.predicted.add(board.prompt.keys(BLOCK, bigram=False), 0.0)
    return board


def by_each(facts: Facts) -> Facts:
    """Return the same facts for a lineup without columns."""
    facts.lineup, facts.column = lineup(list(facts.ranks)), None
    return facts


@pytest.mark.parametrize("policy", POLICIES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 1 << 32), predicted=st.booleans())
def test_costs_and_choice_among_many_ranks_are_those_of_each(policy: str, seed: int, predicted: bool) -> None:
    board, rule, weights = many(seed, predicted=predicted), POLICIES[policy], Weights()
    together, each = board.facts(b"session"), by_each(board.facts(b"session"))
    assert together.lineup.columns is not None
    assert list(rule.costs(together, weights)) == pytest.approx(list(rule.costs(each, weights)), rel=1e-12)
    chosen = choose(rule, together, weights, Random(seed)), choose(rule, each, weights, Random(seed))
    assert chosen[0].rank is chosen[1].rank


def test_loads_are_followed_when_the_ranks_are_others() -> None:
    board = many(1, predicted=False)
    for gone in (0, 5, 20):
        board.ranks = board.ranks[gone : gone + 50]
        board.ranks[7].view.close()  # so that lineups are made anew
        facts = board.facts()
        ticket = Ledger().open(board.ranks[9].load, 5, 7)
        columns = facts.lineup.columns
        if len(board.ranks) >= 48:
            assert columns is not None
            assert columns_of(columns) == shown([rank.load for rank in board.ranks])
        ticket.close()


def test_the_loads_of_ranks_that_have_left_are_let_go() -> None:
    board = many(2, predicted=False)
    few = board.ranks[:2]
    board.facts()
    board.ranks = board.ranks[2:]
    board.ranks[7].view.close()
    gather(board.index, few, board.prompt)  # a lineup without columns is known first
    facts = board.facts()
    rows = board.index.lineups._board
    assert rows is not None
    assert len(rows) == MANY - 2
    assert facts.lineup.columns is not None
    assert columns_of(facts.lineup.columns) == shown([rank.load for rank in board.ranks])
