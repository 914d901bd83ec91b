"""Control calls through the router, on stand-ins of both engines: the right view is reset in time."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from router.core.steps import State
from router.fleet.control import all_ok, control, control_all
from router.fleet.sync import WeightSync
from router.fleet.worker import Worker, WorkerState
from tests.core.frames import batch, stored
from tests.fleet.test_fleet import fleet_of
from tests.waiting import until
from workers.fleet import Fleet as StandIns
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.fleet.fleet import Fleet

PROMPT = list(range(1, 100))
ENGINES = ["sglang", "vllm"]


@asynccontextmanager
async def fleet_before(count: int = 1, **spec: Any) -> AsyncIterator[tuple[Fleet, list[Worker]]]:
    async with StandIns([WorkerSpec(**spec) for _ in range(count)]) as stand_ins:
        urls = [worker.url for worker in stand_ins.workers]
        async with fleet_of(*urls) as fleet:
            await until(lambda: all(worker.state is WorkerState.READY for worker in fleet.workers.values()))
            yield fleet, [fleet.workers[url] for url in urls]


def held(worker: Worker) -> int:
    return sum(worker.ranks[0].view.blocks().values())


async def complete(worker: Worker, **fields: Any) -> None:
    body = {"model": "stand-in", "prompt": PROMPT, "max_tokens": 1} | fields
    async with httpx2.AsyncClient(timeout=30) as client:
        assert (await client.post(f"{worker.url}/v1/completions", json=body)).status_code == 200


async def warmed(worker: Worker) -> None:
    await complete(worker)
    await until(lambda: held(worker) == 6, "six blocks")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("paused_loop", ["legacy", "publishing"])
async def test_a_flush_that_succeeded_empties_the_view_before_the_call_returns(
    engine: str, paused_loop: str
) -> None:
    async with fleet_before(engine=engine, paused_loop=paused_loop) as (_, (worker,)):
        await warmed(worker)
        assert (await control(worker, "pause", {}))["ok"]
        result = await control(worker, "flush", {})
        assert result["ok"], result
        assert held(worker) == 0
        assert (await control(worker, "continue", {}))["ok"]
        await warmed(worker)


async def test_what_a_conflict_of_hashes_has_cost_is_read_again() -> None:
    async with fleet_before(2) as (_, (one, other)):
        await warmed(one)
        other.ranks[0].view.apply(batch(stored([77], [5] * 16, block_size=16)))
        one.ranks[0].view.apply(batch(stored([77], [6] * 16, block_size=16)))
        stream = one.streams[0]
        assert stream is not None
        assert (stream.state, held(one)) == (State.DEGRADED, 1)
        assert "hashes" in stream.cursor.why
        stream.heal()
        await until(lambda: stream.state is State.LIVE)
        assert held(one) == 6


async def test_a_refused_flush_changes_nothing() -> None:
    async with fleet_before(profile="8b-h100") as (_, (worker,)):
        running = asyncio.create_task(complete(worker, max_tokens=200))
        await until(lambda: held(worker) == 6, "the running request's blocks")
        result = await control(worker, "flush", {})
        assert (result["ok"], result["status"]) == (False, 400)
        assert held(worker) >= 6
        assert worker.ranks[0].view.resets.total() <= 1
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_pause_takes_the_worker_out_and_a_continue_brings_it_back_at_once() -> None:
    async with fleet_before() as (fleet, (worker,)):
        await control(worker, "pause", {"mode": "in_place"})
        assert worker.state is WorkerState.PAUSED
        assert fleet.route("stand-in").ranks == []
        await control(worker, "continue", {})
        assert fleet.route("stand-in").ranks == worker.ranks


async def test_a_weight_update_passes_its_body_and_empties_the_view_where_it_flushes() -> None:
    async with fleet_before() as (_, (worker,)):
        await warmed(worker)
        result = await control(worker, "update_weights", {"model_path": "new", "flush_cache": False})
        assert (result["ok"], held(worker)) == (True, 6)
        result = await control(worker, "update_weights", {"model_path": "newer"})
        assert (result["ok"], held(worker)) == (True, 0)
        assert result["answer"]["success"] is True


async def test_a_weight_update_that_vllm_would_refuse_half_way_is_not_begun() -> None:
    async with fleet_before(engine="vllm") as (_, (worker,)):
        refused = await control(worker, "update_weights", {"model_path": "new"})
        assert (refused["ok"], refused["sent"]) == (False, False)
        assert refused["answer"].startswith("update_info: expected an object")
        assert (await control(worker, "update_weights", {"update_info": {}}))["ok"] is True


@pytest.mark.parametrize("engine", ENGINES)
async def test_an_unknown_mode_is_refused_in_words(engine: str) -> None:
    async with fleet_before(engine=engine) as (_, (worker,)):
        result = await control(worker, "pause", {"mode": "bogus"})
        assert result["ok"] is False
        assert "expected one of" in result["answer"]
        assert worker.state is WorkerState.READY


async def test_a_worker_that_cannot_be_reached_is_a_result_and_not_an_error() -> None:
    async with fleet_of("http://127.0.0.1:9") as fleet:
        results = await control_all(list(fleet.workers.values()), "flush", {})
        assert not all_ok(results)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("max_paused", [1, 3])
async def test_a_weight_sync_empties_every_view_and_never_pauses_more_than_allowed(
    engine: str, max_paused: int
) -> None:
    async with fleet_before(3, engine=engine) as (_, workers):
        for worker in workers:
            await warmed(worker)
        most = 0

        def watch() -> None:
            nonlocal most
            most = max(most, sum(worker.state is WorkerState.PAUSED for worker in workers))
            handle[0] = asyncio.get_running_loop().call_later(0.0005, watch)

        handle = [asyncio.get_running_loop().call_soon(watch)]
        results = await WeightSync({"max_paused": max_paused}, workers).run()
        handle[0].cancel()
        assert all_ok(results), results
        assert 0 < most <= max_paused
        assert [held(worker) for worker in workers] == [0, 0, 0]
        assert all(worker.state is WorkerState.READY for worker in workers)


async def test_a_sync_with_an_update_that_flushes_needs_no_second_flush() -> None:
    async with fleet_before() as (_, (worker,)):
        await warmed(worker)
        results = await WeightSync({"update": {"model_path": "new"}}, [worker]).run()
        assert list(results[worker.url]["steps"]) == ["pause", "update_weights", "continue"]
        assert held(worker) == 0


async def test_a_failed_update_still_continues_the_worker() -> None:
    async with fleet_before() as (_, (worker,)):
        results = await WeightSync({"update": {"model_path": 3}}, [worker]).run()
        assert results[worker.url]["ok"] is False
        assert results[worker.url]["steps"]["continue"]["ok"]
        assert worker.state is WorkerState.READY
