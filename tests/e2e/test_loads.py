"""What others send to the workers is seen by the engines' own word, and keeps our requests away."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

from router.core.price import running
from router.core.weights import Weights
from tests.e2e.processes import both
from tests.e2e.test_routing import complete, explain, ranks
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = list(range(1, 101))
OTHERS = 12
ENGINES = [
    ("socket", ("--engine", "sglang", "--load-port", "0")),
    ("answer", ("--engine", "vllm")),
]


@asynccontextmanager
async def busy(url: str) -> AsyncIterator[None]:
    """Keep requests of somebody else's running at a worker."""
    async with httpx2.AsyncClient(base_url=url, timeout=60.0) as direct:
        body = {"model": "stand-in", "prompt": PROMPT[:20], "max_tokens": 4000}
        tasks = [asyncio.create_task(direct.post("/v1/completions", json=body)) for _ in range(OTHERS)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize(("by", "engine"), ENGINES)
async def test_what_others_have_at_a_worker_counts_while_it_is_there(
    by: str, engine: tuple[str, ...]
) -> None:
    timing = ("--profile", "8b-h100")
    async with both(*engine, *timing, router_options=("--load-seconds", "0.1")) as (workers, _, client):
        url, other = (worker["url"] for worker in workers.workers)
        first = await complete(client, PROMPT, max_tokens=1)
        async with busy(url):

            async def seen() -> bool:
                row = (await ranks(client))[url]
                said = row["engine"]
                # Whose socket is silent for a moment, on a machine that is busy, is asked meanwhile.
                told = bool(said and said["by"] == by and said["age_seconds"] < 30)
                return bool(told and row["others_requests"] == OTHERS and said["running"] + said["waiting"])

            await until_awaited(seen, "the load of others")
            explained = await explain(client, PROMPT)
            assert explained[url]["active_requests"] == OTHERS
            assert explained[url]["terms"]["active"] == OTHERS * running(Weights().uncached, Weights())
            again = await complete(client, PROMPT, max_tokens=1)
            assert again.headers["x-kv-router-worker"] == other
            page = (await client.get("/metrics")).text
            assert f'kv_router_others_requests{{rank="0",worker="{url}"}} {OTHERS}.0\n' in page
        assert first.status_code == 200

        async def gone() -> bool:
            return bool((await ranks(client))[url]["others_requests"] == 0)

        await until_awaited(gone, "the load of others to end")


async def test_what_is_our_own_is_not_taken_for_others() -> None:
    options = ("--load-seconds", "0.05")
    async with both("--profile", "8b-h100", "--load-port", "0", router_options=options) as (_, _, client):
        asked = [asyncio.create_task(complete(client, PROMPT[:at], max_tokens=30)) for at in range(20, 60)]
        most = 0
        while not all(task.done() for task in asked):
            most = max(most, *(row["others_requests"] for row in (await ranks(client)).values()))
            await asyncio.sleep(0.01)
        assert all(task.result().status_code == 200 for task in asked)
        assert most == 0
