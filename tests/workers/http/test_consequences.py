"""What a weight sync sees over HTTP in every loop that a pause stops, both halves of a pair among them."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.edge import Edge, running, until
from tests.workers.engine.playbook import PAUSABLE
from workers.engine.hicache import TierConfig
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

    from workers.engine.rank import PausedLoop, Rank

PROMPT = list(range(64))
SLOW_HOST = TierConfig(host=4.0, host_bandwidth=64 * 131_072 / 0.6)  # 64 tokens take 0.6 s
UPDATE = {"model_path": "new", "weight_version": "1"}
_rooms = count(2**62)

every_loop = pytest.mark.parametrize("loop", PAUSABLE)
every_mode = pytest.mark.parametrize("paused_loop", ["legacy", "publishing"])


@dataclass(slots=True)
class Whole:
    """The worker under test, and who it needs for the other half of a request."""

    edge: Edge
    other: Edge | None = None

    @property
    def rank(self) -> Rank:
        return self.edge.worker.drivers[0].rank

    def send(self, prompt: list[int], max_tokens: int) -> asyncio.Task[list[httpx2.Response]]:
        """Send a request to all who have a part in it."""
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": max_tokens}
        edges = [self.edge] if self.other is None else [self.edge, self.other]
        ports = [edge.worker.describe()["bootstrap_port"] for edge in edges]
        if self.other is not None:
            port = next(port for port in ports if port)
            body |= {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": next(_rooms)}

        async def post() -> list[httpx2.Response]:
            return list(await asyncio.gather(*(edge.post("/v1/completions", body) for edge in edges)))

        return asyncio.create_task(post())


@asynccontextmanager
async def _whole(loop: str, **fields: Any) -> AsyncIterator[Whole]:
    role = loop.partition("-")[0]
    other = {"prefill": "decode", "decode": "prefill"}.get(role)
    spec = WorkerSpec(loop=loop, decode_radix_cache=role == "decode", **fields)
    specs = [spec] if other is None else [spec, WorkerSpec(loop=other)]
    async with running(*specs) as edges:
        yield Whole(*edges)


async def _working(whole: Whole) -> asyncio.Task[list[httpx2.Response]]:
    """Start a request that takes a while, and return when the worker under test is in the middle of it."""
    task = whole.send(list(range(1000, 1600)), 400)
    await until(lambda: whole.rank.started() != [])
    return task


async def _update(edge: Edge) -> tuple[int, bool, str]:
    """Update the weights; return status, success, and the version that is in force after."""
    answer = await edge.post("/update_weights_from_disk", UPDATE)
    version = (await edge.get("/model_info")).json()["weight_version"]
    return answer.status_code, answer.json()["success"], version


@every_loop
@every_mode
async def test_1_a_write_through_refuses_a_sync_until_it_is_reaped(
    loop: str, paused_loop: PausedLoop
) -> None:
    async with _whole(loop, paused_loop=paused_loop, tiers=SLOW_HOST) as whole:
        edge = whole.edge
        for answer in await whole.send(PROMPT, 1):
            assert answer.status_code == 200
        await edge.post("/pause_generation", {"mode": "retract"})
        assert (await edge.post("/flush_cache")).status_code == 400
        assert await _update(edge) == (400, False, "1")
        await until(lambda: whole.rank.memory.next_ack is None)
        await edge.get("/_truth")
        cured = paused_loop == "publishing"
        assert (await edge.post("/flush_cache")).status_code == (200 if cured else 400)
        assert await _update(edge) == ((200, True, "1") if cured else (400, False, "1"))
        await edge.post("/continue_generation")
        await until(whole.rank.idle)
        assert (await edge.post("/flush_cache")).status_code == 200


@every_loop
@every_mode
async def test_a_refused_flush_is_a_400_although_the_weights_have_changed(
    loop: str, paused_loop: PausedLoop
) -> None:
    async with _whole(loop, paused_loop=paused_loop, chunk_tokens=64, profile="8b-h100") as whole:
        task = await _working(whole)
        await whole.edge.post("/pause_generation", {"mode": "in_place"})
        assert await _update(whole.edge) == (400, False, "1")
        await whole.edge.post("/continue_generation")
        await whole.edge.post("/abort_request", {"abort_all": True})
        await task


@every_loop
@every_mode
async def test_5_a_flush_with_a_timeout_waits_for_retracted_requests_too(
    loop: str, paused_loop: PausedLoop
) -> None:
    """A decode worker's hold KV: it refuses either."""
    async with _whole(loop, paused_loop=paused_loop, chunk_tokens=64, profile="8b-h100") as whole:
        edge, task = whole.edge, await _working(whole)
        await edge.post("/pause_generation", {"mode": "retract"})
        decodes = loop.startswith("decode")
        late = await edge.post("/flush_cache?timeout=0.05")
        assert (late.status_code, late.text.strip()) == (400, "Timed out waiting for idle state.")
        at_once = await edge.post("/flush_cache?timeout=0")
        assert at_once.status_code == (400 if decodes else 200)
        await edge.post("/continue_generation")
        await edge.post("/abort_request", {"abort_all": True})
        await task
