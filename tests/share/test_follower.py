"""Following what another process has done to a worker."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from router.fleet.allowed import Allowed
from router.fleet.effects import Added, Begun, Drained, Ended, Removed
from router.fleet.membership import Membership
from router.fleet.spec import parse_worker
from router.fleet.worker import Worker, WorkerState
from router.share.follower import Follower
from tests.fleet.test_control import fleet_before, held, warmed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.engines.control import Action
    from router.fleet.fleet import Fleet


@asynccontextmanager
async def following() -> AsyncIterator[tuple[Follower, Fleet, Worker]]:
    async with fleet_before() as (fleet, (worker,)):
        allowed = Allowed()
        yield Follower(fleet, Membership(fleet.roster, allowed, drain_seconds=30.0), allowed), fleet, worker


def begun(worker: Worker, action: Action) -> Begun:
    return Begun("call", worker.url, action)


def ended(worker: Worker, action: Action, *, ok: bool = True, cleared: bool = False) -> Ended:
    return Ended("call", worker.url, action, answered=True, ok=ok, cleared=cleared)


async def test_a_flush_elsewhere_empties_the_view_here() -> None:
    async with following() as (follower, _, worker):
        await warmed(worker)
        await follower.follow("other", begun(worker, "flush"))
        assert held(worker) == 6
        await follower.follow("other", ended(worker, "flush", cleared=True))
        assert held(worker) == 0


async def test_a_flush_that_was_refused_elsewhere_changes_nothing() -> None:
    async with following() as (follower, _, worker):
        await warmed(worker)
        await follower.follow("other", begun(worker, "flush"))
        await follower.follow("other", ended(worker, "flush", ok=False))
        assert held(worker) == 6


async def test_a_worker_that_is_paused_elsewhere_takes_no_request_here() -> None:
    async with following() as (follower, _, worker):
        await follower.follow("other", begun(worker, "pause"))
        states = [worker.state]
        await follower.follow("other", ended(worker, "pause"))
        states.append(worker.state)
        await follower.follow("other", begun(worker, "continue"))
        await follower.follow("other", ended(worker, "continue"))
        assert [*states, worker.state] == ["draining", "paused", "ready"]


async def test_a_process_that_dies_within_a_call_leaves_a_view_that_claims_nothing() -> None:
    async with following() as (follower, _, worker):
        await warmed(worker)
        await follower.follow("other", begun(worker, "pause"))
        follower.gone("somebody")
        assert worker.state is WorkerState.DRAINING
        follower.gone("other")
        assert (worker.state, held(worker)) == (WorkerState.READY, 0)


async def test_who_is_in_the_fleet_is_followed_once_or_again() -> None:
    async with following() as (follower, fleet, worker):
        other = Added(parse_worker("http://127.0.0.1:9"), "127.0.0.1")
        for effect in (other, Drained(worker.url, on=True)):
            for _ in range(2):
                assert await follower.follow("other", effect) == 0
        assert (list(fleet.workers), worker.drained) == ([worker.url, other.spec.url], "by the operator")
        await follower.follow("other", Drained(worker.url, on=False))
        assert worker.drained == ""
        for _ in range(2):
            assert await follower.follow("other", Removed(worker.url, 30.0)) == 0
        assert list(fleet.workers) == [other.spec.url]
