"""Each policy sends a request where its rule says."""

from __future__ import annotations

from random import Random

import pytest

from router.core.cost import POLICIES, Candidate, Weights, choose
from router.core.index import Index
from router.core.ledger import Load
from router.core.rank import Rank
from router.core.view import View

WEIGHTS = Weights()


def candidate(name: str, *, uncached: int = 0, **load: int) -> Candidate:
    rank = Rank(name, 0, View(Index(), "m", block_size=16), Load(**load))
    return Candidate(rank, 0, 0, uncached)


def chosen(policy: str, *candidates: Candidate, seed: int = 0) -> str:
    return choose(POLICIES[policy], candidates, WEIGHTS, Random(seed)).rank.worker


def test_kv_weighs_prefill_in_flight_own_prefill_and_running_requests() -> None:
    cost = POLICIES["kv"].cost(candidate("a", uncached=10, inflight_tokens=100, active_requests=2), WEIGHTS)
    assert cost == 100 + 3 * 10 + 512 * 2


def test_kv_keeps_a_prefix_until_its_holder_is_busy() -> None:
    cold = candidate("cold", uncached=1000)
    assert chosen("kv", candidate("warm", active_requests=5), cold) == "warm"
    assert chosen("kv", candidate("warm", active_requests=6), cold) == "cold"


def test_round_robin_takes_the_rank_chosen_longest_ago() -> None:
    assert chosen("round_robin", candidate("a", last_dispatch=3), candidate("b", last_dispatch=2)) == "b"


def test_least_requests_and_least_tokens_look_at_their_own_measure() -> None:
    a = candidate("a", uncached=10, inflight_tokens=0, active_requests=3)
    b = candidate("b", uncached=0, inflight_tokens=20, active_requests=1)
    assert chosen("least_requests", a, b) == "b"
    assert chosen("least_tokens", a, b) == "a"


def test_lmetric_multiplies_tokens_and_requests() -> None:
    a = candidate("a", uncached=10, active_requests=3)
    b = candidate("b", uncached=30, active_requests=0)
    assert chosen("lmetric", a, b) == "b"


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_what_is_equal_in_all_is_decided_at_random(policy: str) -> None:
    candidates = [candidate(name) for name in "abcd"]
    assert {chosen(policy, *candidates, seed=seed) for seed in range(100)} == set("abcd")


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"random"}))
def test_of_equal_costs_the_rank_chosen_longest_ago_takes_the_request(policy: str) -> None:
    candidates = [candidate("a", last_dispatch=7), candidate("b", last_dispatch=3)]
    assert {chosen(policy, *candidates, seed=seed) for seed in range(20)} == {"b"}


def test_the_random_policy_draws_whoever_was_chosen_before() -> None:
    candidates = [candidate("a", last_dispatch=7), candidate("b", last_dispatch=3)]
    assert {chosen("random", *candidates, seed=seed) for seed in range(50)} == {"a", "b"}


def test_power_of_two_never_takes_the_busiest_of_three() -> None:
    candidates = [candidate("a"), candidate("b", active_requests=1), candidate("c", active_requests=2)]
    assert {chosen("power_of_two", *candidates, seed=seed) for seed in range(50)} == {"a", "b"}


def test_a_single_candidate_is_chosen_by_every_policy() -> None:
    for policy in POLICIES:
        assert chosen(policy, candidate("only", uncached=5)) == "only"
