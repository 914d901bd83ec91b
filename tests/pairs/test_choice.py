"""Which pair, or which worker alone: by what ranks hold, by load, and by how much is to be computed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.cost import POLICIES, Weights
from router.core.events import Batch
from router.core.index import Index
from router.core.wish import Wish
from router.fleet.route import Halves
from router.pairs.choice import Choice, Judge, Options
from tests.core.frames import stored
from tests.pairs.ranks import a_rank

if TYPE_CHECKING:
    from router.core.rank import Rank

TOKENS = list(range(1, 4097))


class Board:
    """Two prefill and two decode ranks of one engine, one that does both, and a prompt of 4,096 tokens."""

    def __init__(self) -> None:
        self.index = Index()
        self.p0, self.p1, self.d0, self.d1, self.both = (
            a_rank(name, index=self.index) for name in ("p0", "p1", "d0", "d1", "both")
        )
        self.prompt = PromptBlocks(pack_tokens(TOKENS), len(TOKENS), Namespace("m"))

    def holds(self, rank: Rank, blocks: int) -> None:
        rank.view.apply(
            Batch(1.0, [stored(list(range(1, blocks + 1)), TOKENS[: blocks * 16], block_size=16)], 0)
        )

    def choose(
        self, policy: str = "kv", *, min_uncached: int = 0, alone: bool = False, able: bool = False
    ) -> Choice | None:
        judge = Judge(self.index, Weights(), Random(0), min_uncached)
        decode = [self.d0, self.d1]
        options = Options(
            [self.both] if alone else [], decode if able else [], [Halves([self.p0, self.p1], decode)]
        )
        return judge.choose(options, self.prompt, Wish(POLICIES[policy]))

    def names(self, policy: str = "kv", **more: int) -> tuple[str, str | None]:
        choice = self.choose(policy, **more)  # type: ignore[arg-type] # flags and a number
        assert choice is not None
        return choice.first.rank.worker, choice.decode.rank.worker if choice.decode else None


@pytest.fixture
def board() -> Board:
    return Board()


def test_a_prefill_rank_is_chosen_by_what_it_holds_and_a_decode_rank_by_load(board: Board) -> None:
    board.holds(board.p1, 200)
    board.d0.load.active_requests = 3
    assert board.names() == ("p1", "d1")
    board.p1.load.inflight_tokens = 20_000
    assert board.names() == ("p0", "d1")


def test_what_a_decode_rank_holds_counts_against_its_load(board: Board) -> None:
    board.holds(board.d0, 200)
    board.d0.load.active_requests = 3
    assert board.names()[1] == "d0"
    board.d0.load.active_requests = 8
    assert board.names()[1] == "d1"


def test_prefill_in_flight_is_no_load_of_a_decode_rank(board: Board) -> None:
    board.d0.load.inflight_tokens = 10**6
    board.d1.load.active_requests = 1
    assert board.names()[1] == "d0"


def test_a_rank_that_does_both_competes_at_the_policys_cost(board: Board) -> None:
    board.holds(board.both, 100)
    assert board.names(alone=True) == ("both", None)
    board.both.load.active_requests = 20
    assert board.names(alone=True)[1] is not None


def test_little_to_compute_goes_straight_to_who_would_compute_it(board: Board) -> None:
    board.holds(board.p0, 255)
    assert board.names(min_uncached=100, able=True)[0] == "p0"
    board.holds(board.d1, 252)
    assert board.names(min_uncached=100, able=True) == ("d1", None)
    assert board.names(min_uncached=100)[0] == "p0"
    assert board.names(min_uncached=60, able=True)[0] == "p0"


@pytest.mark.parametrize("policy", ["round_robin", "least_requests"])
def test_a_policy_that_looks_at_load_alone_is_the_decode_ranks_too(board: Board, policy: str) -> None:
    board.holds(board.d0, 200)
    board.d0.load.last_dispatch = board.d0.load.active_requests = 2
    board.d1.load.last_dispatch = board.d1.load.active_requests = 1
    assert board.names(policy)[1] == "d1"


def test_without_anybody_there_is_no_choice(board: Board) -> None:
    judge, wish = Judge(board.index, Weights(), Random(0), 100), Wish(POLICIES["kv"])
    assert judge.choose(Options([], [], []), board.prompt, wish) is None
    assert judge.choose(Options([], [board.d0], []), board.prompt, wish) is None
