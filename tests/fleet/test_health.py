"""What workers' answers do to routing: breakers, refusals, and that the last worker is always kept."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from router.core.breaker import BreakerRules, BreakerState, Failure
from router.errors import UpstreamFailed, UpstreamTimeout
from router.fleet import health
from router.fleet.health import Health
from router.fleet.outliers import eject_outliers
from router.fleet.route import refusal
from router.fleet.worker import WorkerState
from tests.engines.scripted import Answer, scripted
from tests.fleet.test_fleet import fleet_of, sglang
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import pytest

    from router.fleet.fleet import Fleet
    from router.fleet.worker import Worker

OPEN = BreakerState.OPEN


@asynccontextmanager
async def workers(count: int) -> AsyncIterator[tuple[Fleet, list[Worker]]]:
    async with AsyncExitStack() as stack:
        servers = [(await stack.enter_async_context(scripted(sglang())))[0] for _ in range(count)]
        fleet = await stack.enter_async_context(fleet_of(*(server.url for server in servers)))
        await until(lambda: fleet.models() and len(fleet.route("tiny").ranks) == count)
        yield fleet, [fleet.workers[server.url] for server in servers]


def taking(fleet: Fleet) -> list[str]:
    return [rank.worker for rank in fleet.route("tiny").ranks]


def spare(fleet: Fleet) -> list[list[str]]:
    return [[rank.worker for rank in ranks] for ranks in fleet.route("tiny").spare]


def fail(worker: Worker, times: int = 5) -> None:
    for _ in range(times):
        worker.health.failed(Failure.STATUS, "it answers 500")


async def test_failures_in_a_row_keep_requests_away_as_long_as_another_worker_is_there() -> None:
    async with workers(2) as (fleet, (one, other)):
        fail(one)
        assert (taking(fleet), spare(fleet)) == ([other.url], [[one.url]])
        assert refusal(one) == "breaker open: failures"
        fail(other)
        assert taking(fleet) == [one.url, other.url]
        assert fleet.ready
        assert spare(fleet) == []


async def test_one_that_has_too_much_to_do_is_better_than_one_that_fails() -> None:
    async with workers(3) as (fleet, (one, two, three)):
        fail(one)
        two.health.refused(20.0)
        assert (taking(fleet), spare(fleet)) == ([three.url], [[two.url], [one.url]])
        three.health.refused(20.0)
        assert (taking(fleet), spare(fleet)) == ([two.url, three.url], [[one.url]])
        assert refusal(two).startswith("it has too much to do, for ")


async def test_a_refusal_holds_for_the_time_it_names_and_not_longer() -> None:
    async with workers(2) as (fleet, (one, other)):
        one.health.refused(0.05)
        assert taking(fleet) == [other.url]
        await until(lambda: len(taking(fleet)) == 2)
        assert one.health.refusals == 1


async def test_a_refusal_is_bounded_and_a_shorter_one_does_not_end_a_longer_one() -> None:
    async with workers(2) as (_, (one, other)):
        one.health.refused(None)
        assert 0 < one.health.loaded_seconds() <= health.UNNAMED_SECONDS
        one.health.refused(10.0**9)
        one.health.refused(0.0)
        assert health.UNNAMED_SECONDS < one.health.loaded_seconds() <= health.LONGEST_SECONDS
        other.health.refused(0.0)
        assert not other.health.loaded


async def test_only_one_request_is_on_trial_and_it_decides() -> None:
    async with workers(2) as (fleet, (one, other)):
        fail(one)
        one.health.rejoined()
        assert taking(fleet) == [one.url, other.url]
        one.health.begun()
        assert taking(fleet) == [other.url]
        one.health.ended()
        assert taking(fleet) == [one.url, other.url]
        trial, beside = one.health.begun(), one.health.begun()
        one.health.ended(beside)
        assert taking(fleet) == [other.url]
        one.health.succeeded(trial)
        assert taking(fleet) == [one.url, other.url]
        assert not one.health.breaker.troubled


async def test_only_the_trial_that_fails_opens_a_breaker_again() -> None:
    async with workers(1) as (fleet, (one,)):
        fail(one)
        one.health.rejoined()
        trial = one.health.begun()
        failure = UpstreamFailed("gone")
        for failure.trial, state in ((0, BreakerState.HALF_OPEN), (trial, BreakerState.OPEN)):
            fleet.failed(one.ranks[0], failure)
            assert one.health.breaker.state is state


async def test_a_worker_that_was_down_is_tried_as_soon_as_it_is_up() -> None:
    async with scripted(sglang()) as (server, _), fleet_of(server.url) as fleet:
        await until(lambda: fleet.ready)
        worker = fleet.workers[server.url]
        fail(worker)
        server.routes["/health"] = Answer(status=500)
        await until(lambda: worker.state is WorkerState.FAILED)
        assert worker.health.breaker.state is OPEN
        server.routes["/health"] = Answer()
        await until(lambda: worker.state is WorkerState.READY)
        assert worker.health.breaker.state is BreakerState.HALF_OPEN


async def test_failures_have_the_kind_of_what_happened() -> None:
    async with workers(1) as (fleet, (worker,)):
        rank = worker.ranks[0]
        not_sent = UpstreamFailed("no connection to the worker could be made")
        not_sent.sent = False
        for failure in (UpstreamTimeout("slow"), UpstreamFailed("lost"), not_sent):
            fleet.failed(rank, failure)
        fleet.failed(rank, UpstreamFailed("lost"), begun=True)
        assert worker.health.breaker.failures == dict.fromkeys(("timeout", "reset", "connect", "cut"), 1)


async def test_the_worst_of_a_group_is_ejected() -> None:
    async with workers(3) as (fleet, group):
        for worker in group:
            worker.health.breaker.good += 100
        for _ in range(30):
            group[1].health.breaker.bad += 1
        eject_outliers(fleet.workers.values(), 5.0)
        assert [worker.health.breaker.cause for worker in group] == ["", "outlier", ""]
        assert taking(fleet) == [group[0].url, group[2].url]


async def test_each_change_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "router.fleet.health")
    seen = Health("http://w", BreakerRules(failures=2), lambda: None)
    for _ in range(4):
        seen.failed(Failure.STATUS, "it answers 500")
    seen.rejoined()
    seen.begun()
    seen.succeeded()
    seen.succeeded()
    assert [record.getMessage() for record in caplog.records] == [
        "worker http://w: breaker open (failures: it answers 500)",
        "worker http://w: breaker half_open (probe)",
        "worker http://w: breaker closed (trial)",
    ]


async def test_a_worker_that_leaves_leaves_no_timer_behind() -> None:
    changes: list[None] = []
    seen = Health("http://w", BreakerRules(), lambda: changes.append(None))
    seen.refused(0.01)
    seen.close()
    await asyncio.sleep(0.02)
    assert (len(changes), seen.loaded) == (1, False)
