"""More requests than workers can take: over real sockets and processes."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.e2e.asking import Load, ask, no_load, rows
from tests.e2e.processes import both
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    import httpx2

    from tests.e2e.processes import Running

FULL = ("--max-worker-inflight", "2", "--queue-size", "4", "--queue-seconds", "30")


async def metric(client: httpx2.AsyncClient, name: str) -> float:
    """Return a metric's value, summed over its labels."""
    text = (await client.get("/metrics")).text
    return sum(
        float(value) for value in re.findall(rf"^kv_router_{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE)
    )


def resident(process: Running) -> int:
    """Return a process's memory in bytes."""
    pages = Path(f"/proc/{process.process.pid}/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


async def test_what_finds_no_room_waits_and_what_finds_no_place_is_refused() -> None:
    async with both("--profile", "70b-tp8", router_options=FULL) as (_, front, client):
        under_way = [asyncio.create_task(ask(front.url, prompt=[1], max_tokens=40)) for _ in range(4)]

        async def are_busy() -> bool:
            return all(row["inflight_requests"] == 2 for row in (await rows(client)).values())

        await until_awaited(are_busy, "both workers full")
        waiting = [asyncio.create_task(ask(front.url, prompt=[2], max_tokens=2)) for _ in range(4)]

        async def all_wait() -> bool:
            return await metric(client, "waiting_requests") == 4

        await until_awaited(all_wait, "a full line")
        refused = await client.post("/v1/completions", json={"model": "stand-in", "prompt": [3]})
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error"]["code"] == "overloaded"
        answers = await asyncio.gather(*under_way, *waiting)
        assert all(got.whole for got in answers)
        assert await metric(client, "waiting_requests") == 0
        assert await metric(client, "turned_away_total") == 1
        assert await metric(client, r'stage_seconds_count\{stage="wait"\}') == 4
        await until_awaited(lambda: no_load(client), "an empty ledger")


async def test_a_higher_priority_goes_first_and_takes_the_place_of_a_lower_one() -> None:
    options = ("--max-inflight", "1", "--queue-size", "2")
    async with both("--profile", "70b-tp8", count=1, router_options=options) as (_, front, client):
        ended: list[str] = []

        async def send(name: str, priority: str) -> int:
            body = {"model": "stand-in", "prompt": [1], "max_tokens": 2}
            answer = await client.post(
                "/v1/completions", json=body, headers={"x-kv-router-priority": priority}
            )
            ended.append(name)
            return answer.status_code

        async def waiting(count: int) -> bool:
            return await metric(client, "waiting_requests") == count

        first = asyncio.create_task(ask(front.url, prompt=[1], max_tokens=40))
        await until_awaited(lambda: _is_busy(client), "a busy worker")
        low = asyncio.create_task(send("low", "0"))
        await until_awaited(lambda: waiting(1), "one in line")
        lowest = asyncio.create_task(send("lowest", "-5"))
        await until_awaited(lambda: waiting(2), "two in line")
        high = asyncio.create_task(send("high", "5"))
        assert (await lowest, await low, await high) == (429, 200, 200)
        assert ended == ["lowest", "high", "low"]
        assert (await first).whole
        wrong = await client.post("/v1/completions", json={}, headers={"x-kv-router-priority": "urgent"})
        assert wrong.status_code == 400


async def _is_busy(client: httpx2.AsyncClient) -> bool:
    return any(row["inflight_requests"] for row in (await rows(client)).values())


@pytest.mark.parametrize("leaves", [False, True])
async def test_a_client_that_leaves_the_line_frees_its_place(*, leaves: bool) -> None:
    options = ("--max-inflight", "1", "--queue-size", "1")
    async with both("--profile", "70b-tp8", count=1, router_options=options) as (_, front, client):
        first = asyncio.create_task(ask(front.url, prompt=[1], max_tokens=40))
        await until_awaited(lambda: _is_busy(client), "a busy worker")
        second = asyncio.create_task(ask(front.url, prompt=[2]))

        async def waits(count: int) -> bool:
            return await metric(client, "waiting_requests") == count

        await until_awaited(lambda: waits(1), "one in line")
        if leaves:
            second.cancel()
            await until_awaited(lambda: waits(0), "an empty line")
        third = await ask(front.url, prompt=[3])
        assert third.status == (200 if leaves else 429)
        assert (await first).whole
        await asyncio.gather(second, return_exceptions=True)
        await until_awaited(lambda: no_load(client), "an empty ledger")


async def test_ten_times_the_load_leaves_memory_flat_and_the_ledger_empty() -> None:
    options = ("--max-worker-inflight", "4", "--queue-size", "8")
    async with both("--profile", "70b-tp8", router_options=options) as (_, front, client):
        load = Load(front.url, 80, max_tokens=4)
        await until(lambda: len(load.answers) > 1000)
        before = resident(front)
        await until(lambda: len(load.answers) > 4000)
        grown = resident(front) - before
        answers = await load.stop()
        assert set(Counter(got.status for got in answers)) == {200, 429}
        assert all(got.whole for got in answers if got.status == 200)
        assert grown < 32 << 20
        await until_awaited(lambda: no_load(client), "an empty ledger")
        assert await metric(client, "waiting_requests") == 0
