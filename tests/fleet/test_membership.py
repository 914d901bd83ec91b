"""Workers come, are drained and go at run time, and nothing of them stays."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from router.core.ledger import Ledger
from router.errors import Busy, NotPermitted, WorkerExists, WorkerRemoved
from router.fleet.allowed import Allowed
from router.fleet.membership import Membership
from router.fleet.snapshot import snapshot
from router.fleet.spec import parse_worker
from router.fleet.worker import Worker, WorkerState
from tests.fleet.discovery.following import logged
from tests.fleet.test_fleet import fleet_of
from tests.waiting import until
from workers.fleet import Fleet as StandIns
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.fleet.fleet import Fleet

HERE = Allowed([ip_network("127.0.0.0/8")])
BODY = b'{"model": "stand-in", "prompt": %a, "max_tokens": 2}' % list(range(1, 50))
HEADERS = [(b"content-type", b"application/json")]


@asynccontextmanager
async def members(
    count: int = 2, given: int = 1, **spec: Any
) -> AsyncIterator[tuple[Fleet, Membership, list[str]]]:
    """Run stand-ins and a fleet that knows the first of them."""
    async with StandIns([WorkerSpec(**spec) for _ in range(count)]) as stand_ins:
        urls = [worker.url for worker in stand_ins.workers]
        async with fleet_of(*urls[:given]) as fleet:
            fleet_members = Membership(fleet.roster, HERE, drain_seconds=30.0)
            await until(lambda: len(taking(fleet)) == given)
            yield fleet, fleet_members, urls
            await fleet_members.close()


def taking(fleet: Fleet) -> list[str]:
    return [rank.worker for rank in fleet.route("stand-in").ranks] if fleet.models() else []


def open_sockets(fleet: Fleet) -> int:
    return sum(not socket.closed for socket in fleet._zmq._sockets)


async def faults(url: str, **plan: Any) -> None:
    async with httpx2.AsyncClient() as direct:
        assert (await direct.post(f"{url}/_faults", json=plan)).status_code == 200


async def request(worker: Worker) -> bytes:
    """Send one as the dispatcher would, in the ledger and over the worker's own connections."""
    rank = worker.ranks[0]
    rank.load.active_requests += 1
    try:
        response = await worker.upstream.request(b"POST", b"/v1/completions", HEADERS, BODY)
        return await response.read_all(65536)
    finally:
        rank.load.active_requests -= 1


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_one_that_is_added_takes_requests_and_its_events_are_heard(engine: str) -> None:
    async with members(engine=engine) as (fleet, membership, urls):
        worker = await membership.add(parse_worker(urls[1]))
        await until(lambda: taking(fleet) == urls)
        await request(worker)
        await until(lambda: worker.streams[0] is not None and worker.streams[0].state == "live")
        assert [row.url for row in snapshot(fleet.workers.values())] == urls


async def test_one_that_is_removed_leaves_nothing_behind() -> None:
    async with members() as (fleet, membership, urls):
        first = fleet.workers[urls[0]]
        await until(lambda: [stream and stream.state for stream in first.streams] == ["live"])
        held, sockets, tasks = len(fleet.index.holders), open_sockets(fleet), len(asyncio.all_tasks())
        for _ in range(3):
            worker = await membership.add(parse_worker(urls[1]))
            await until(lambda: taking(fleet) == urls)
            await request(worker)
            await until(worker.ranks[0].view.blocks)
            assert await membership.remove(worker) == 0
            assert urls[1] not in fleet.workers
            assert (worker.upstream.busy, worker.ranks, worker.streams) == (0, [], [])
            await until(lambda: (len(fleet.index.holders), open_sockets(fleet)) == (held, sockets))
            await until(lambda: len(asyncio.all_tasks()) <= tasks)
        assert [row.url for row in snapshot(fleet.workers.values())] == urls[:1]


async def test_one_that_is_drained_takes_nothing_is_looked_after_and_comes_back() -> None:
    async with members(given=2) as (fleet, membership, urls):
        worker = fleet.workers[urls[0]]
        membership.drain(worker)
        assert taking(fleet) == urls[1:]
        (row, _) = snapshot(fleet.workers.values())
        assert (row.state, row.why) == ("draining", "by the operator")
        assert worker.state is WorkerState.READY
        await request(worker)
        membership.undrain(worker)
        assert taking(fleet) == urls


async def test_nobody_waits_for_workers_that_are_drained() -> None:
    async with members() as (fleet, membership, urls):
        membership.drain(fleet.workers[urls[0]])
        assert not fleet.ready
        assert not fleet.route("stand-in").paused


async def test_a_removal_waits_for_what_is_under_way() -> None:
    async with members(given=2) as (fleet, membership, urls):
        await faults(urls[0], slow=0.2)
        worker = fleet.workers[urls[0]]
        under_way = asyncio.create_task(request(worker))
        await until(lambda: worker.upstream.busy)
        assert await membership.remove(worker) == 0
        assert b"stand-in" in await under_way


async def test_what_takes_too_long_is_cut_and_a_second_call_can_shorten_the_time() -> None:
    async with members(given=2) as (fleet, membership, urls):
        await faults(urls[0], slow=60.0)
        worker = fleet.workers[urls[0]]
        under_way = asyncio.create_task(request(worker))
        await until(lambda: worker.upstream.busy)
        patient = asyncio.create_task(membership.remove(worker, 1000.0))
        await until(lambda: worker.drained)
        with pytest.raises(Busy):
            membership.undrain(worker)
        with pytest.raises(WorkerExists):
            await membership.add(parse_worker(urls[0]))
        assert await membership.remove(worker, 0.0) == 1
        assert await patient == 1
        with pytest.raises(WorkerRemoved):
            await under_way


async def test_the_last_line_about_a_worker_says_that_it_is_removed_why_and_what_was_cut() -> None:
    async with logged() as log, members(given=2) as (fleet, membership, urls):
        idle, busy = (fleet.workers[url] for url in urls)
        await membership.remove(idle, why="no source names it any more, pod a")
        await faults(urls[1], slow=60.0)
        under_way = asyncio.create_task(request(busy))
        await until(lambda: busy.upstream.busy)
        await membership.remove(busy, 0.0)
        with pytest.raises(WorkerRemoved):
            await under_way
        assert [line for line in log.lines if urls[0] in line][-2:] == [
            f"worker {urls[0]}: draining (it is being removed: no source names it any more, pod a)",
            f"worker {urls[0]}: removed (no source names it any more, pod a); all of its requests had ended",
        ]
        assert [line for line in log.lines if urls[1] in line][-1] == (
            f"worker {urls[1]}: removed (by the operator); requests cut, for their time was over: 1"
        )


@asynccontextmanager
async def replaced(slow: float) -> AsyncIterator[tuple[Membership, Worker, asyncio.Task[bytes]]]:
    """Run a worker that has a request and then other settings."""
    async with members() as (fleet, membership, urls):
        await faults(urls[0], slow=slow)
        old = fleet.workers[urls[0]]
        under_way = asyncio.create_task(request(old))
        await until(lambda: old.upstream.busy)
        new = await membership.replace(old, parse_worker(f"{urls[0]},model=other"), None)
        yield membership, new, under_way


async def test_what_is_under_way_at_a_worker_that_was_replaced_counts_as_the_new_ones() -> None:
    async with members() as (fleet, membership, urls):
        worker = fleet.workers[urls[0]]
        ticket = Ledger().open(worker.ranks[0].load, 40)
        for model in ("other", "third"):
            worker = await membership.replace(worker, parse_worker(f"{urls[0]},model={model}"), None)
            (row,) = snapshot(fleet.workers.values())
            assert (worker.ranks, row.inflight_requests, row.inflight_tokens) == ([], 1, 40)
            await until(partial(getattr, worker, "ranks"))
            (row,) = snapshot(fleet.workers.values())
            assert (row.inflight_requests, row.inflight_tokens) == (1, 40)
            assert worker.ranks[0].load.own_requests == 1
        ticket.close()
        assert (worker.requests(), worker.ranks[0].load.active_requests) == (0, 0)


async def test_a_removal_waits_for_what_is_under_way_at_the_worker_that_was_there_before() -> None:
    async with replaced(0.3) as (membership, new, under_way):
        assert await membership.remove(new) == 0
        assert under_way.done()
        assert b"stand-in" in await under_way


async def test_a_removal_counts_and_cuts_what_is_under_way_at_the_worker_that_was_there_before() -> None:
    async with logged() as log, replaced(60.0) as (membership, new, under_way):
        assert await membership.remove(new, 0.0) == 1
        with pytest.raises(WorkerRemoved):
            await under_way
        assert [line for line in log.lines if new.url in line][-1] == (
            f"worker {new.url}: removed (by the operator); requests cut, for their time was over: 1"
        )


async def test_what_a_replaced_worker_had_is_cut_after_the_time_of_a_removal_and_told() -> None:
    async with logged() as log, members() as (fleet, membership, urls):
        await faults(urls[0], slow=60.0)
        old = fleet.workers[urls[0]]
        under_way = [asyncio.create_task(request(old)) for _ in range(2)]
        await until(lambda: old.upstream.busy == 2)
        membership.drain_seconds = 0.0
        new = await membership.replace(old, parse_worker(urls[0]), None)
        ends = await asyncio.gather(*under_way, return_exceptions=True)
        assert [type(end) for end in ends] == [WorkerRemoved, WorkerRemoved]
        assert new.requests() == 0
        assert f"worker {urls[0]}: 2 requests to what was there before are cut" in log.lines


async def test_a_removal_goes_on_when_its_caller_has_gone() -> None:
    async with members(given=2) as (fleet, membership, urls):
        await faults(urls[0], slow=0.2)
        worker = fleet.workers[urls[0]]
        under_way = asyncio.create_task(request(worker))
        await until(lambda: worker.upstream.busy)
        caller = asyncio.create_task(membership.remove(worker))
        await until(lambda: worker.drained)
        caller.cancel()
        await until(lambda: urls[0] not in fleet.workers)
        await under_way


async def test_a_worker_is_added_once_however_it_is_written() -> None:
    async with members() as (fleet, membership, urls):
        named = parse_worker("http://Worker.invalid")
        assert fleet.roster.enter(named).url == named.url
        for same in (urls[0], f"{urls[0]}/", "http://worker.invalid", "http://worker.invalid:80/"):
            with pytest.raises(WorkerExists):
                fleet.roster.enter(parse_worker(same))
        with pytest.raises(WorkerExists):
            await membership.add(parse_worker(urls[0]))


async def test_nothing_is_connected_to_outside_of_the_ranges() -> None:
    async with members() as (fleet, membership, urls):
        with pytest.raises(NotPermitted):
            await membership.add(parse_worker("http://10.0.0.1:1"))
        with pytest.raises(NotPermitted):
            await membership.add(parse_worker(f"{urls[1]},kv=tcp://10.0.0.1:1"))
        assert list(fleet.workers) == urls[:1]


async def test_a_name_is_looked_up_once_and_the_address_that_was_checked_is_used() -> None:
    async with members() as (fleet, membership, urls):
        port = urls[1].rpartition(":")[2]
        url = f"http://localhost:{port}"
        spec = parse_worker(url)
        both = Membership(
            fleet.roster, Allowed([ip_network("127.0.0.0/8"), ip_network("::1")]), drain_seconds=1.0
        )
        worker = await both.add(spec)
        assert worker.upstream._address in {"127.0.0.1", "::1"}
        await until(lambda: taking(fleet) == [urls[0], url])
        assert worker.description is not None
        for source in worker.description.sources:
            assert source is not None
            assert "localhost" not in source.endpoint
        await membership.remove(worker)
