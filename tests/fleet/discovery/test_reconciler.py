"""The fleet becomes what the sources want, and nobody else notices."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from ipaddress import ip_network
from typing import TYPE_CHECKING

import pytest

from router.errors import WorkerRemoved
from router.fleet.discovery.wanted import Wanted
from router.fleet.spec import parse_worker
from tests.fleet.discovery.following import Following, Said, following, logged
from tests.fleet.test_membership import faults, request
from tests.waiting import until
from workers.fleet import Fleet as StandIns
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def stand_ins(count: int) -> AsyncIterator[list[str]]:
    async with StandIns([WorkerSpec() for _ in range(count)]) as fleet:
        yield [worker.url for worker in fleet.workers]


def wanted(url: str, process: str = "", away: str = "") -> Wanted:
    return Wanted(parse_worker(url), process, away)


async def settled(here: Following, *urls: str) -> None:
    await until(lambda: here.taking() == sorted(urls), f"{urls} take requests")


async def test_workers_come_and_go_without_touching_the_streams_of_others() -> None:
    source = Said()
    async with stand_ins(3) as (one, two, three), following(source) as here:
        source.want(wanted(one), wanted(two))
        await settled(here, one, two)
        stays = here.worker(one)
        streams, ranks = list(stays.streams), list(stays.ranks)
        source.want(wanted(three), wanted(one))
        await settled(here, one, three)
        await until(lambda: two not in here.fleet.workers)
        assert here.worker(one) is stays
        assert (stays.streams, stays.ranks) == (streams, ranks)
        assert streams[0] is not None
        await request(stays)
        await until(ranks[0].view.blocks, "its events are heard")


async def test_what_a_worker_has_to_do_is_done_before_it_goes() -> None:
    source = Said()
    async with stand_ins(2) as (one, two), following(source) as here:
        source.want(wanted(one), wanted(two))
        await settled(here, one, two)
        await faults(one, slow=0.2)
        leaving = here.worker(one)
        under_way = asyncio.create_task(request(leaving))
        await until(lambda: leaving.upstream.busy)
        source.want(wanted(two))
        await settled(here, two)
        assert b"stand-in" in await under_way
        await until(lambda: one not in here.fleet.workers)


async def test_why_a_source_has_a_worker_removed_is_said_when_it_is_gone_and_not_before() -> None:
    source = Said()
    async with logged() as log, stand_ins(2) as (one, two), following(source) as here:
        source.want(replace(wanted(one), name="pod one"), replace(wanted(two, "a"), addresses=("127.0.0.1",)))
        await settled(here, one, two)
        source.want(replace(wanted(two, "b"), addresses=("127.0.0.9",)))
        await until(lambda: not here.fleet.workers)
        await until(lambda: log.count(": removed (") == 2)
        gone = [line for line in log.lines if one in line][-1]
        assert gone.startswith(f"worker {one}: removed (no source names it any more, pod one); ")
        refused = [line for line in log.lines if two in line][-1]
        assert refused.startswith(f"worker {two}: removed (its address cannot be used); ")
        assert not log.count("removed, pod one")


async def test_one_that_is_wanted_again_while_it_drains_is_kept_with_its_views() -> None:
    source = Said()
    async with stand_ins(1) as (one,), following(source) as here:
        source.want(wanted(one))
        await settled(here, one)
        await faults(one, slow=60.0)
        worker = here.worker(one)
        under_way = asyncio.create_task(request(worker))
        await until(lambda: worker.upstream.busy)
        source.want()
        await settled(here)
        source.want(wanted(one))
        await settled(here, one)
        assert here.worker(one) is worker
        under_way.cancel()
        await asyncio.gather(under_way, return_exceptions=True)


async def test_other_settings_hold_at_once_and_cut_nothing() -> None:
    source = Said()
    async with stand_ins(2) as (one, two), following(source) as here:
        source.want(wanted(one), wanted(two))
        await settled(here, one, two)
        await faults(one, slow=0.2)
        before, other = here.worker(one), here.worker(two)
        under_way = asyncio.create_task(request(before))
        await until(lambda: before.upstream.busy)
        source.want(wanted(f"{one},topic=kv"), wanted(two))
        await until(lambda: here.worker(one) is not before)
        await settled(here, one, two)
        assert here.worker(one).spec.topic == "kv"
        assert here.worker(two) is other
        assert b"stand-in" in await under_way
        await until(lambda: not before.upstream._open)


async def test_another_process_behind_the_same_url_is_another_worker() -> None:
    source = Said()
    async with stand_ins(1) as (one,), following(source) as here:
        source.want(wanted(one, "uid-1"))
        await settled(here, one)
        first = here.worker(one)
        source.want(wanted(one, "uid-1", away="not ready"))
        await settled(here)
        assert here.worker(one) is first
        source.want(wanted(one, "uid-2"))
        await until(lambda: here.fleet.workers.get(one) not in {None, first})
        await settled(here, one)


async def test_one_that_is_kept_away_is_looked_after_and_the_operators_drain_is_not_undone() -> None:
    source = Said()
    async with stand_ins(1) as (one,), following(source) as here:
        source.want(wanted(one, away="not ready"))
        await until(lambda: one in here.fleet.workers and here.worker(one).state == "ready")
        assert here.worker(one).shown() == ("draining", "not ready")
        source.want(wanted(one))
        await settled(here, one)
        here.membership.drain(here.worker(one))
        source.want(wanted(one, away="not ready"))
        source.want(wanted(one))
        source.want(wanted(one), wanted("http://127.0.0.1:1"))
        await until(lambda: len(here.fleet.workers) == 2)
        assert here.worker(one).shown() == ("draining", "by the operator")


async def test_the_settings_decide_where_a_source_has_the_same_worker() -> None:
    source = Said()
    async with stand_ins(1) as (one,):
        spec = parse_worker(f"{one},topic=kv")
        async with following(source, given=[spec]) as here:
            await settled(here, one)
            first = here.worker(one)
            source.want(wanted(one), wanted("http://127.0.0.1:1"))
            await until(lambda: len(here.fleet.workers) == 2)
            assert here.worker(one) is first
            here.discovery.settings([])
            await until(lambda: here.fleet.workers.get(one) not in {None, first})
            assert here.worker(one).spec.topic is None


async def test_what_the_operator_has_removed_stays_away_until_there_is_news_of_it() -> None:
    source = Said()
    async with stand_ins(2) as (one, two), following(source) as here:
        source.want(wanted(one))
        await settled(here, one)
        await here.membership.remove(here.worker(one))
        source.want(wanted(one), wanted(two))
        await settled(here, two)
        source.want(wanted(two))
        source.want(wanted(f"{one},topic=kv"), wanted(two))
        await until(lambda: one in here.fleet.workers)


async def test_what_the_operator_has_added_is_left_alone() -> None:
    source = Said()
    async with (
        stand_ins(2) as (one, two),
        following(source, networks=[ip_network("127.0.0.0/8")]) as here,
    ):
        worker = await here.membership.add(parse_worker(one))
        source.want(wanted(f"{one},topic=kv"), wanted(two))
        await settled(here, one, two)
        assert here.worker(one) is worker
        source.want(wanted(two))
        source.want(wanted(f"{one},topic=kv"), wanted(two))
        await here.membership.remove(worker)
        await until(lambda: one in here.fleet.workers)
        assert here.worker(one).spec.topic == "kv"


@pytest.mark.parametrize(
    ("addresses", "networks"), [(("127.0.0.9",), []), (("127.0.0.1",), [ip_network("10.0.0.0/8")])]
)
async def test_an_address_that_is_not_allowed_is_left_out_and_said_once(
    addresses: tuple[str, ...], networks: list[object]
) -> None:
    source = Said()
    async with logged() as log, stand_ins(2) as (one, two), following(source, networks=networks) as here:  # type: ignore[arg-type] # the networks of a parametrize list are of two kinds
        foreign = replace(wanted(one), addresses=addresses)
        source.want(foreign)
        await until(lambda: log.count("is left out"))
        for _ in range(3):
            source.want(foreign, wanted(two))
            source.want(foreign)
        source.want(foreign, wanted(two))
        await settled(here, two)
        assert log.count("is left out") == 1
        assert one not in here.fleet.workers


async def test_a_replacement_at_an_address_that_is_not_allowed_ends_the_worker() -> None:
    source = Said()
    async with stand_ins(1) as (one,), following(source) as here:
        source.want(replace(wanted(one, "a"), addresses=("127.0.0.1",)))
        await settled(here, one)
        source.want(replace(wanted(one, "b"), addresses=("127.0.0.9",)))
        await until(lambda: one not in here.fleet.workers)


async def test_nothing_is_left_when_the_router_stops_meanwhile() -> None:
    source = Said()
    async with stand_ins(2) as (one, two):
        async with following(source) as here:
            source.want(wanted(one), wanted(two))
            await settled(here, one, two)
            await faults(one, slow=60.0)
            await faults(two, slow=60.0)
            cut = [here.worker(one), here.worker(two)]
            under_way = [asyncio.create_task(request(worker)) for worker in cut]
            await until(lambda: all(worker.upstream.busy for worker in cut))
            source.want(wanted(f"{two},topic=kv"))
            await until(lambda: here.worker(two) is not cut[1])
        ended = await asyncio.gather(*under_way, return_exceptions=True)
        assert [type(error) for error in ended] == [WorkerRemoved, WorkerRemoved]
        assert not any(worker.upstream._open for worker in cut)
