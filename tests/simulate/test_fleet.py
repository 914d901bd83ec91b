from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.core.cost import POLICIES
from tests.simulate.fleets import run, workload
from workers.engine.hicache import TierConfig
from workers.simulate.run import simulate
from workers.simulate.setup import Setup
from workers.traces.workload import Ask, Sync, Workload

if TYPE_CHECKING:
    from workers.simulate.results import Result

ONE = Workload("one", (Ask(1.0, ((1, 1600),), 11),))


def both(first: Ask, second: Ask) -> Workload:
    return Workload("two", (first, second))


def computed(result: Result) -> float:
    return 1 - result.hit_share


def test_one_request_takes_as_long_as_the_profile_says() -> None:
    result = run(ONE)
    assert result.ttft.mean == pytest.approx(0.040 + 1600 / 15_900)
    assert result.tpot.mean == pytest.approx(0.020 + 30e-6)
    assert (result.requests, result.unended, result.hit_share) == (1, 0, 0.0)
    assert result.seconds == pytest.approx(1 + result.e2e.mean)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_simulated_and_a_seed_decides_it(policy: str) -> None:
    asked = workload()
    first = run(asked, policy=policy, seed=4)
    assert first == run(asked, policy=policy, seed=4)
    assert (first.requests, first.unended) == (len(asked.asks), 0)


def test_another_seed_is_another_run() -> None:
    assert run(workload(), policy="random", seed=1) != run(workload(), policy="random", seed=2)


def test_what_a_worker_holds_draws_requests_there() -> None:
    asked = workload()
    assert computed(run(asked)) < 0.6 * computed(run(asked, policy="round_robin"))


def test_a_prefix_on_its_way_is_known_before_its_event() -> None:
    """Both come before the first has been computed: the second follows its prediction."""
    result = run(both(Ask(0.0, ((1, 9000), (2, 64)), 4), Ask(0.01, ((1, 9000), (3, 64)), 4)))
    assert result.hit_share > 0.4


def test_a_cache_that_is_lost_is_not_believed_in_any_more() -> None:
    asked = workload("groups,qps=4,seconds=30,groups=20,output=60")
    knows, guesses = (run(asked, losses=6, hears=hears, kv_tokens=100_000) for hears in (True, False))
    assert knows.unended == guesses.unended == 0
    assert knows.ttft.p99 < guesses.ttft.p99
    assert computed(knows) > computed(run(asked, kv_tokens=100_000))


def test_a_router_that_starts_anew_reads_the_history_if_it_hears_events() -> None:
    asked = workload()
    steady = run(asked)
    assert computed(run(asked, restarts=6)) < 1.1 * computed(steady)
    assert computed(run(asked, restarts=6, hears=False)) > 1.1 * computed(steady)


def test_several_routers_know_of_all_blocks_by_events_only() -> None:
    asked = workload()
    alone = run(asked)
    assert computed(run(asked, replicas=4)) < 1.2 * computed(alone)
    assert computed(run(asked, replicas=4, hears=False)) > 1.4 * computed(alone)


def test_routers_that_share_know_what_the_others_have_sent() -> None:
    asked = workload()
    apart = run(asked, replicas=4, hears=False)
    assert computed(run(asked, replicas=4, hears=False, share=0.02)) < 0.8 * computed(apart)


def test_load_that_is_shared_spreads_a_burst() -> None:
    burst = Workload("burst", tuple(Ask(at / 1000, ((at, 4000),), 4) for at in range(24)))
    apart, together = (run(burst, workers=5, replicas=8, share=share) for share in (None, 0.0))
    assert together.busiest == pytest.approx(5 / 4.8)
    assert apart.busiest > together.busiest


def test_late_events_do_little_harm_and_a_deaf_router_none_where_nothing_is_lost() -> None:
    asked = workload()
    assert computed(run(asked, lag=0.5)) < 1.1 * computed(run(asked))
    assert computed(run(asked, hears=False)) < 1.1 * computed(run(asked))


def test_a_weight_sync_holds_requests_back_and_leaves_nothing_cached() -> None:
    prompt = ((1, 3200),)
    asks = (Ask(0.0, prompt, 5), Ask(10.0, prompt, 5), Ask(20.5, prompt, 5), Ask(40.0, prompt, 5))
    result = run(Workload("sync", asks, (Sync(20.0, 4.0),)))
    assert result.hit_share == pytest.approx((3200 - 16) * 2 / (4 * 3200))
    assert result.ttft.highest == pytest.approx(3.5 + 0.040 + 3200 / 15_900)


def test_requests_that_run_through_a_sync_or_a_loss_are_answered_in_full() -> None:
    asks = tuple(Ask(at / 10, ((at, 600),), 400) for at in range(30))
    assert run(Workload("sync", asks, (Sync(2.0, 1.0), Sync(4.0, 1.0)))).unended == 0
    assert run(Workload("loss", asks), losses=9, tiers=TierConfig(host=2.0)).unended == 0


def test_a_host_tier_keeps_what_the_device_must_drop() -> None:
    asked = workload("groups,qps=6,seconds=40,groups=12,output=40")
    small = {"kv_tokens": 24_000}
    assert computed(run(asked, tiers=TierConfig(host=10.0), **small)) < 0.8 * computed(run(asked, **small))


def test_samples_show_the_workers_over_time() -> None:
    result = run(workload())
    assert len(result.samples) == 200
    assert all(len(sample.requests) == len(sample.occupied) == 3 for sample in result.samples)
    assert max(max(sample.requests) for sample in result.samples) > 0
    assert 0 < max(max(sample.occupied) for sample in result.samples) <= 1


def test_progress_adds_up_to_all_requests() -> None:
    told: list[int] = []
    asked = workload()
    simulate(asked, Setup(workers=2), told.append)
    assert sum(told) == len(asked.asks)
