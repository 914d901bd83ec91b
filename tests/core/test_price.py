"""A token to compute counts more often where others pay for it, too."""

from __future__ import annotations

from typing import Any

import pytest

from router.core.cost import Weights
from router.core.ledger import Load
from router.core.price import BY_CHANCE, HORIZON, MANY, busy, price, running, shared, together, unproven
from tests.core.board import BLOCK, Board
from tests.core.frames import batch, removed

HALF = HORIZON // 2


def board(*ranks: dict[str, Any], **more: Any) -> Board:
    made = Board(**more)
    for number, said in enumerate(ranks):
        made.add(str(number), **said)
    return made


def predict(ranks: Board, at: int, blocks: int) -> None:
    ranks.ranks[at].view.predicted.add(ranks.prompt.keys(BLOCK, bigram=False)[:blocks], 0.0)


def test_on_an_idle_fleet_with_room_it_is_the_weight_alone() -> None:
    assert price(board({"held": 800}, {}).facts(), Weights()) == Weights().uncached


@pytest.mark.parametrize(("tokens", "share"), [((0, 0), 0), ((HALF, 0), 0.25), ((10 * HORIZON, HORIZON), 1)])
def test_ranks_are_busy_as_far_as_they_have_tokens_for_half_a_second(
    tokens: tuple[int, ...], share: float
) -> None:
    facts = board(*({"tokens": each} for each in tokens)).facts()
    assert busy(facts.loads) == share


def test_when_all_are_busy_it_counts_so_many_times_as_often() -> None:
    facts = board({"tokens": HORIZON}, {"tokens": HORIZON}).facts()
    assert price(facts, Weights(uncached=1.5, saturated=10)) == pytest.approx(15)
    assert price(facts, Weights(uncached=1.5, saturated=1)) == 1.5


def test_it_counts_more_where_caches_evict_until_they_are_reset() -> None:
    ranks = board({"held": 320}, {})
    ranks.ranks[0].view.apply(batch(removed([20])))
    assert ranks.facts().full == 0.5
    assert price(ranks.facts(), Weights()) == Weights().uncached + Weights().copy / 2
    ranks.ranks[0].view.reset("test")
    assert ranks.facts().full == 0


def test_what_has_been_asked_for_but_once_is_not_worth_a_copy() -> None:
    ranks = board({"held": 320}, {})
    predict(ranks, 1, 10)
    assert unproven(ranks.facts()) == 0
    predict(ranks, 1, 40)
    assert unproven(ranks.facts()) == 0.5
    assert price(ranks.facts(), Weights()) == Weights().uncached + Weights().copy / 2


@pytest.mark.parametrize(
    ("crowd", "share"),
    [(0.0, 1.0), (1.0, 1.0), (BY_CHANCE, 1.0), (BY_CHANCE + 2, 1 / 5), (BY_CHANCE + 32, 1 / 65)],
)
def test_it_counts_less_the_more_are_expected_for_each_rank_to_come_at_once(
    crowd: float, share: float
) -> None:
    facts = board({"held": 320}, {}).facts()
    facts.crowd = crowd
    assert shared(6.0, facts, Weights(crowd=4)) == pytest.approx(6.0 * share)
    assert shared(6.0, facts, Weights(crowd=0)) == 6.0


def test_of_a_prefix_that_crowds_come_for_a_copy_is_made_before_they_wait_for_it() -> None:
    ranks = board({"held": 1584, "tokens": 900}, {})
    assert ranks.chosen("kv") == "0"
    for now in (0.0, *[5.0] * 32, 60.0):
        ranks.index.crowds.note(ranks.facts().prefix, now)
    assert ranks.chosen("kv") == "1"


def test_a_prompt_that_is_not_known_has_a_price() -> None:
    ranks = board({}, {})
    ranks.prompt.tokens = b""
    assert price(ranks.facts(), Weights()) == Weights().uncached
    assert together(ranks.facts(), 8192) == {}


@pytest.mark.parametrize(
    ("load", "again"),
    [
        ({"tokens": 1600, "requests": 2, "waiting_requests": 1}, 800),  # both are in the next batch
        ({"tokens": 500, "requests": 2, "waiting_requests": 1}, 500),  # no more than is in flight
        ({"tokens": 7900, "requests": 9, "waiting_requests": 5}, 292),  # a batch is nearly full
        ({"tokens": 9000, "requests": 9, "waiting_requests": 5}, 0),  # it waits for another batch
        ({"tokens": 1600, "requests": 1, "waiting_requests": 1}, 0),  # the first has been begun at once
        ({"tokens": 0, "requests": 3}, 0),  # all has been computed
    ],
)
def test_of_two_prompts_in_one_batch_each_is_computed_whole(load: dict[str, int], again: int) -> None:
    ranks = board(load, {})
    predict(ranks, 0, 50)
    assert together(ranks.facts(), 8192) == ({0: again} if again else {})


def test_an_engine_that_caches_what_it_schedules_shares_within_a_batch() -> None:
    ranks = board({"tokens": 1600, "requests": 2, "waiting_requests": 1}, {})
    predict(ranks, 0, 50)
    ranks.ranks[0].view.counts_copies = True
    assert together(ranks.facts(), 8192) == {}


def test_siblings_spread_over_ranks_that_decode_and_gather_on_one_that_does_not() -> None:
    busy_ranks, idle = {"tokens": 1600, "requests": 2, "waiting_requests": 1}, {"tokens": 1600, "requests": 1}
    decoding = board(busy_ranks, {"requests": 1})
    predict(decoding, 0, 100)
    assert decoding.chosen("kv") == "1"
    resting = board({**idle, "waiting_requests": 1}, {})
    predict(resting, 0, 100)
    assert resting.chosen("kv") == "0"


def test_in_a_large_fleet_some_ranks_tell_how_busy_all_are() -> None:
    loads = [Load(inflight_tokens=HORIZON if number < 250 else 0) for number in range(500)]
    assert busy(loads) == pytest.approx(0.5, abs=0.01)


def test_what_is_predicted_everywhere_is_no_news() -> None:
    ranks = board(*({"tokens": 1600, "requests": 2, "waiting_requests": 1} for _ in range(MANY)))
    for at in range(MANY - 1):
        predict(ranks, at, 50)
    assert len(together(ranks.facts(), 8192)) == MANY - 1
    predict(ranks, MANY - 1, 50)
    assert together(ranks.facts(), 8192) == {}


def test_a_running_request_counts_for_less_while_tokens_are_cheap() -> None:
    assert running(1.5, Weights(active=512)) == 256
    assert running(3, Weights(active=512)) == running(15, Weights(active=512)) == 512
