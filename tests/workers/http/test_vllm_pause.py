"""vLLM's pauses that wait for requests to end: what they wait for, what ends the wait, what is left after."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.edge import Edge, one, running, until
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Coroutine

PROMPT = list(range(100, 164))
ASKS = {"do_remote_decode": True, "do_remote_prefill": False}
ENDLESS = 100_000


async def _decoding(edge: Edge, tokens: int = ENDLESS) -> asyncio.Task[dict[str, Any]]:
    """Start a request and return when the engine decodes it."""
    task = asyncio.create_task(edge.complete(PROMPT, tokens))
    await until(lambda: edge.worker.drivers[0].rank.running != [])
    return task


async def _hangs(edge: Edge, request: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Send a request during a pause and return when it waits."""
    task = asyncio.create_task(request)
    await until(lambda: len(edge.worker.drivers[0].rank.waiting) == 1)
    return task


@pytest.mark.parametrize("path", ["/pause?mode=abort", "/pause?mode=wait", "/sleep?mode=abort"])
async def test_kv_that_is_kept_for_a_decode_worker_holds_no_pause_up(path: str) -> None:
    async with running(WorkerSpec(engine="vllm"), WorkerSpec(engine="vllm")) as [prefill, decode]:
        answer = await prefill.complete(PROMPT, kv_transfer_params=ASKS)
        assert (await prefill.post(path)).status_code == 200
        assert (await prefill.truth())["blocks"] == []
        new = await _hangs(prefill, prefill.complete([1]))
        await prefill.post("/resume")
        await new
        fetched = await decode.complete(PROMPT, 3, kv_transfer_params=answer["kv_transfer_params"])
        assert fetched["usage"]["completion_tokens"] == 3
        await until(prefill.worker.drivers[0].rank.idle)


@pytest.mark.parametrize("path", ["/pause?mode=wait", "/sleep?mode=wait"])
@pytest.mark.parametrize("end", ["/resume", "/wake_up"])
async def test_a_resume_ends_the_wait_and_the_engine_does_not_pause_later(path: str, end: str) -> None:
    async with one(engine="vllm", profile="8b-h100") as edge:
        long = await _decoding(edge)
        pausing = asyncio.create_task(edge.post(path))
        await until(lambda: edge.worker.edge.paused)
        new = asyncio.create_task(edge.complete([1]))
        await until(lambda: edge.worker.edge.live == 2)
        assert not pausing.done()
        await edge.post(end)
        await new
        await pausing
        assert (await edge.get("/is_paused")).json() == {"is_paused": False}
        assert 'sleep_state="awake"} 1.0' in (await edge.get("/metrics")).text
        long.cancel()
        await until(edge.worker.drivers[0].rank.idle)
        await edge.complete([1])


async def test_an_abort_takes_over_from_a_pause_that_waits() -> None:
    async with one(engine="vllm", profile="8b-h100") as edge:
        long = await _decoding(edge)
        waiting = asyncio.create_task(edge.post("/pause?mode=wait"))
        await until(lambda: edge.worker.edge.paused)
        await edge.post("/pause?mode=abort")
        assert (await long)["choices"][0]["finish_reason"] == "abort"
        assert (await waiting).status_code == 200
        assert (await edge.truth())["paused"]


@pytest.mark.parametrize(("mode", "ending"), [("abort", "abort"), ("wait", "length")])
async def test_what_an_earlier_pause_has_frozen_is_ended_too(mode: str, ending: str) -> None:
    async with one(engine="vllm") as edge:
        long = await _decoding(edge, 500)
        await edge.post("/pause?mode=keep&clear_cache=false")
        assert (await edge.post(f"/pause?mode={mode}")).status_code == 200
        assert (await long)["choices"][0]["finish_reason"] == ending
        assert (await edge.truth())["paused"]
        assert (await edge.truth())["blocks"] == []


@pytest.mark.parametrize(
    "path", ["/pause?mode=keep", "/reset_prefix_cache?reset_running_requests=true", "/sleep?mode=keep"]
)
async def test_kv_that_travels_during_a_clear_is_stored_from_the_root(path: str) -> None:
    slow = WorkerSpec(engine="vllm", transfer_bandwidth=64 * 131_072 / 0.5)
    async with running(slow, WorkerSpec(engine="vllm")) as [prefill, decode]:
        await decode.complete(PROMPT[:33])
        asked = await prefill.complete(PROMPT, kv_transfer_params=ASKS)
        params = asked["kv_transfer_params"]
        task = asyncio.create_task(decode.complete(PROMPT, 2, kv_transfer_params=params))
        side = decode.worker.drivers[0].rank.decode
        assert side is not None
        await until(lambda: side.transfer != [])
        await decode.post(path)
        assert side.transfer != []
        await decode.post("/resume")
        await task
        events = await decode.events()
        cleared = [event["type"] for event in events].index("AllBlocksCleared")
        known: set[int | None] = {None}
        for event in events[cleared + 1 :]:
            assert event["parent_block_hash"] in known
            known.update(event["block_hashes"])
        assert known == {None, *(await decode.truth())["blocks"]}
        assert len(known) == 5
