"""Each policy sends a request where its rule says."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from router.core.cost import POLICIES, Weights
from router.core.costs import PASSED_OVER
from tests.core.board import Board

# Whose terms add up to the cost.
SUMS = ("kv", "least_tokens", "dynamo", "sticky", "preble", "session")
# What kv is with a price that is always the same.
CONSTANT = Weights(uncached=3, active=512, saturated=1, copy=0, crowd=0, batch=0)
# Rules by which a rank's place, and not its load, decides.
PLACED = {"random", "prefix_hash"}


def board(**ranks: dict[str, Any]) -> Board:
    made = Board()
    for name, facts in ranks.items():
        made.add(name, **facts)
    return made


def test_kv_weighs_prefill_in_flight_own_prefill_and_running_requests() -> None:
    costs = board(a={"held": 1584, "tokens": 100, "requests": 2}).costs("kv", CONSTANT)
    assert costs == {"a": 100 + 3 * 16 + 512 * 2}


def test_kv_keeps_a_prefix_until_its_holder_is_busy() -> None:
    assert board(cold={}, warm={"held": 1584, "requests": 9}).chosen("kv") == "warm"
    assert board(cold={}, warm={"held": 1584, "requests": 10}).chosen("kv") == "cold"


def test_kv_counts_what_others_have_sent_like_its_own() -> None:
    ranks = board(a={}, b={})
    ranks.ranks[0].load.hear(2000, 1)
    assert ranks.costs("kv", CONSTANT) == {"a": 2000 + 512 + 4800, "b": 4800}


def test_kv_prices_a_hit_in_a_lower_tier_by_its_speed() -> None:
    ranks = board(
        cold={},
        host={"held": 1584, "tier": "CPU_PINNED"},
        disk={"held": 1584, "tier": "DISK"},
        far={"held": 1584, "tier": "STORAGE"},
    )
    speeds = {
        "prefill_speed": 1000.0,
        "host_speed": 100_000.0,
        "disk_speed": 2000.0,
        "external_speed": 4000.0,
    }
    costs = ranks.costs("kv", replace(CONSTANT, **speeds))
    assert costs["host"] == pytest.approx(3 * (16 + 15.84))
    assert costs["disk"] == pytest.approx(3 * (16 + 792))
    assert costs["far"] == pytest.approx(3 * (16 + 396))
    assert costs["cold"] == 4800


def test_kv_prefers_a_rank_where_the_adapter_is_loaded() -> None:
    ranks = Board(lora="poet")
    for name in ("a", "b"):
        ranks.add(name)
    ranks.ranks[1].note_adapter("poet")
    assert ranks.costs("kv", CONSTANT) == {"a": 4800 + 1024, "b": 4800}
    for other in ("w", "x", "y", "z"):
        ranks.ranks[1].note_adapter(other)
    assert ranks.costs("kv", CONSTANT)["b"] == 4800 + 1024
    assert ranks.costs("kv", replace(CONSTANT, adapter_slots=5))["b"] == 4800


def test_a_request_without_an_adapter_goes_anywhere() -> None:
    ranks = board(a={}, b={})
    ranks.ranks[1].note_adapter("poet")
    assert len(set(ranks.costs("kv").values())) == 1


def test_kv_counts_a_full_kv_cache_if_told_to() -> None:
    ranks = board(said={"usage": 0.5}, own={"context_tokens": 250, "capacity_tokens": 1000}, unknown={})
    assert set(ranks.costs("kv", CONSTANT).values()) == {4800}
    costs = ranks.costs("kv", replace(CONSTANT, occupancy=1000))
    assert costs == {"said": 5300, "own": 5050, "unknown": 4800}


def test_round_robin_takes_the_rank_chosen_longest_ago() -> None:
    assert board(a={"last_dispatch": 3}, b={"last_dispatch": 2}).chosen("round_robin") == "b"


def test_least_requests_and_least_tokens_look_at_their_own_measure() -> None:
    ranks = board(a={"requests": 3}, b={"held": 1584, "tokens": 1600, "requests": 1})
    assert ranks.chosen("least_requests") == "b"
    assert ranks.chosen("least_tokens") == "a"


def test_lmetric_multiplies_tokens_and_requests() -> None:
    ranks = board(a={"held": 800, "requests": 3}, b={"tokens": 800})
    assert ranks.costs("lmetric") == {"a": 800 * 4, "b": 2400}


def test_power_of_two_never_takes_the_busiest_of_three() -> None:
    ranks = board(a={}, b={"requests": 1}, c={"requests": 2})
    assert {ranks.chosen("power_of_two", seed=seed) for seed in range(50)} == {"a", "b"}


def test_dynamo_counts_blocks_to_prefill_and_blocks_being_decoded() -> None:
    ranks = board(
        gpu={"held": 1584},
        host={"held": 1584, "tier": "CPU_PINNED"},
        far={"held": 1584, "tier": "STORAGE"},
        busy={"held": 1584, "tokens": 160, "context_tokens": 320},
    )
    assert ranks.costs("dynamo") == {"gpu": 1, "host": 1 + 99 / 4, "far": 1 + 99 * 3 / 4, "busy": 1 + 10 + 20}


def test_dynamo_with_a_temperature_draws_the_cheaper_more_often() -> None:
    ranks = board(a={"held": 1584}, b={"held": 800}, c={})
    warm = Weights(temperature=0.5)
    drawn = Counter(ranks.chosen("dynamo", seed=seed, weights=warm) for seed in range(600))
    assert drawn["a"] > drawn["b"] > drawn["c"] > 0
    # The odds are exp(-2 * share of the spread): 1, 0.37, 0.14.
    assert 0.55 < drawn["a"] / 600 < 0.78
    assert {ranks.chosen("dynamo", seed=seed) for seed in range(20)} == {"a"}


def test_cache_aware_balances_matches_and_spreads_in_this_order() -> None:
    def ranks(**more: Any) -> Board:
        return board(holder={"held": 1584, **more}, small={}, large={})

    assert ranks(requests=64).chosen("cache_aware") == "holder"
    assert ranks(requests=65).chosen("cache_aware") != "holder"
    spread = board(large={"held": 640}, small={"held": 320})
    assert spread.costs("cache_aware") == {"large": 640, "small": 320}
    assert spread.chosen("cache_aware") == "small"


def test_cache_aware_balances_only_where_the_ratio_is_high_too() -> None:
    assert board(a={"held": 1584, "requests": 300}, b={"requests": 201}).chosen("cache_aware") == "a"
    assert board(a={"held": 1584, "requests": 302}, b={"requests": 201}).chosen("cache_aware") == "b"


@pytest.mark.parametrize("length", range(80, 4000, 80))
def test_for_sticky_exactly_four_fifths_of_a_prompt_are_most_of_it(length: int) -> None:
    held = length * 4 // 5
    ranks = Board(length)
    ranks.add("warm", held=held, tokens=1000)
    ranks.add("cold")
    assert ranks.costs("sticky")["warm"] == 1000 + length - held


def test_sticky_stays_where_most_is_held_until_a_first_token_comes_much_sooner_elsewhere() -> None:
    weights = Weights(prefill_speed=1000, sticky_seconds=18)
    assert board(warm={"held": 1584, "tokens": 19_583}, cold={}).chosen("sticky", weights=weights) == "warm"
    assert board(warm={"held": 1584, "tokens": 19_585}, cold={}).chosen("sticky", weights=weights) == "cold"
    assert board(half={"held": 800, "tokens": 900}, cold={}).chosen("sticky", weights=weights) == "cold"


def test_preble_goes_by_load_among_the_longest_matches_when_they_are_most_of_the_prompt() -> None:
    ranks = board(a={"held": 1200, "requests": 5}, b={"held": 1200, "requests": 4}, idle={"held": 1184})
    assert ranks.costs("preble") == {"a": 5 * 512, "b": 4 * 512, "idle": PASSED_OVER}
    assert ranks.chosen("preble") == "b"
    little = board(a={"held": 480, "requests": 3}, idle={})
    assert little.costs("preble") == {"a": 3 * 512 + 1120, "idle": 1600}


def test_a_session_stays_at_its_rank_and_sessions_spread() -> None:
    ranks = board(**{name: {} for name in "abcd"})
    homes = {name: ranks.chosen("session", session=b"%d" % name) for name in range(200)}
    assert all(homes[name] == ranks.chosen("session", session=b"%d" % name, seed=9) for name in homes)
    assert min(Counter(homes.values()).values()) > 25
    ranks.ranks = [rank for rank in ranks.ranks if rank.worker != "b"]
    moved = {name for name, home in homes.items() if ranks.chosen("session", session=b"%d" % name) != home}
    assert moved == {name for name, home in homes.items() if home == "b"}


def test_a_request_of_no_session_goes_by_the_default_policy() -> None:
    ranks = board(a={}, b={"held": 1584})
    assert ranks.costs("session") == ranks.costs("kv")


def test_prefix_hash_keeps_a_beginning_together_until_its_rank_has_too_many_requests() -> None:
    ranks = board(**{name: {} for name in "abcd"})
    home = ranks.chosen("prefix_hash")
    loads = {rank.worker: rank.load for rank in ranks.ranks}
    loads[home].active_requests = 10
    assert ranks.chosen("prefix_hash") != home
    for load in loads.values():
        load.active_requests = 10
    assert ranks.chosen("prefix_hash") == home


def test_prefix_hash_looks_at_the_beginning_alone() -> None:
    homes = set()
    for length in (300, 400, 1600):
        ranks = Board(length)
        for name in "abcd":
            ranks.add(name)
        homes.add(ranks.chosen("prefix_hash"))
    assert len(homes) == 1


def test_a_prompt_that_is_not_known_goes_by_load_under_prefix_hash() -> None:
    ranks = board(a={"requests": 1}, b={})
    ranks.prompt.tokens = b""
    assert ranks.costs("prefix_hash") == {"a": 1, "b": 0}


def test_predictions_that_a_rank_has_missed_count_in_part() -> None:
    ranks = board(a={}, b={})
    for rank in ranks.ranks:
        rank.view.predicted.add(ranks.prompt.keys(16, bigram=False), 0.0)
    assert ranks.costs("least_tokens") == {"a": 16, "b": 16}
    for _ in range(10):
        ranks.ranks[0].view.predicted.learn(0.0)
    trust = ranks.ranks[0].view.predicted.trust
    assert trust == pytest.approx(0.9**10)
    assert ranks.costs("least_tokens") == {"a": pytest.approx(16 + (1 - trust) * 1584), "b": 16}


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - {"prefix_hash"}))
def test_what_is_equal_in_all_is_decided_at_random(policy: str) -> None:
    ranks = board(**{name: {} for name in "abcd"})
    assert {ranks.chosen(policy, seed=seed) for seed in range(100)} == set("abcd")


@pytest.mark.parametrize("policy", sorted(set(POLICIES) - PLACED))
def test_of_equal_costs_the_rank_chosen_longest_ago_takes_the_request(policy: str) -> None:
    ranks = board(a={"last_dispatch": 7}, b={"last_dispatch": 3})
    assert {ranks.chosen(policy, seed=seed) for seed in range(20)} == {"b"}


def test_the_random_policy_draws_whoever_was_chosen_before() -> None:
    ranks = board(a={"last_dispatch": 7}, b={"last_dispatch": 3})
    assert {ranks.chosen("random", seed=seed) for seed in range(50)} == {"a", "b"}


@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_a_single_candidate_is_chosen_by_every_policy(policy: str) -> None:
    assert board(only={"held": 800}).chosen(policy, session=b"s") == "only"


@given(
    ranks=st.lists(
        st.fixed_dictionaries(
            {
                "held": st.sampled_from([0, 160, 1264, 1280, 1584]),
                "tier": st.sampled_from(["GPU", "CPU_PINNED", "DISK", "STORAGE"]),
                "tokens": st.integers(0, 10**6),
                "requests": st.integers(0, 500),
                "context_tokens": st.integers(0, 10**6),
                "usage": st.floats(0, 1),
            }
        ),
        min_size=1,
        max_size=5,
    ),
    lora=st.sampled_from([None, "poet"]),
    session=st.sampled_from([None, b"s"]),
)
def test_every_policy_has_a_cost_for_every_rank_and_shows_its_terms(
    ranks: list[dict[str, Any]], lora: str | None, session: bytes | None
) -> None:
    made, weights = Board(lora=lora), Weights(occupancy=100)
    for number, said in enumerate(ranks):
        made.add(f"rank-{number}", **said)
    facts = made.facts(session)
    for name, policy in POLICIES.items():
        costs = policy.costs(facts, weights)
        assert len(costs) == len(ranks)
        assert min(costs) < PASSED_OVER
        for at, cost in enumerate(costs):
            terms = policy.terms(facts, weights, at)
            if name in SUMS:
                assert sum(float(term) for term in terms.values()) == pytest.approx(cost)
