"""Settings that are read again while requests go on."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2

from tests.e2e.processes import Running, fleet, joined, router
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import Any

BODY = {"model": "stand-in", "prompt": list(range(64)), "max_tokens": 2}


def put(path: Path, text: str) -> None:
    path.write_text(text)


@asynccontextmanager
async def configured(
    path: Path, text: str, *options: str
) -> AsyncIterator[tuple[Running, httpx2.AsyncClient]]:
    put(path, text)
    async with (
        router([], "--config", str(path), *options) as front,
        httpx2.AsyncClient(base_url=front.url, timeout=30.0) as client,
    ):
        yield front, client


async def logged(front: Running, part: str) -> None:
    await until(lambda: any(part in line.decode() for line in front.log), f"{part!r} is logged")


def count(front: Running, part: str) -> int:
    return sum(part in line.decode() for line in front.log)


async def rows(client: httpx2.AsyncClient) -> dict[str, Any]:
    return {row["url"]: row for row in (await client.get("/workers")).json()["workers"]}


async def test_workers_and_limits_change_while_a_stream_goes_on(tmp_path: Path) -> None:
    async with fleet(count=2) as workers:
        one, two = (worker["url"] for worker in workers.workers)
        path = tmp_path / "router.yaml"
        async with configured(path, f"workers: [{one}]") as (front, client):
            await joined(client, 1)
            assert (await client.post("/v1/completions", json=BODY)).status_code == 200

            async def held() -> bool:
                return bool((await rows(client))[one]["ranks"][0]["blocks"].get("GPU"))

            await until_awaited(held, "its blocks are known")
            resets = (await rows(client))[one]["ranks"][0]["resets"]
            async with httpx2.AsyncClient() as direct:
                await direct.post(f"{one}/_faults", json={"slow": 1.0})
            long = asyncio.create_task(client.post("/v1/completions", json=BODY | {"stream": True}))

            async def under_way() -> bool:
                return bool((await rows(client))[one]["inflight_requests"])

            await until_awaited(under_way, "the stream is under way")
            path.write_text(f"workers: [{one}, {two}]\nmax_inflight: 1\nqueue_size: 0\n")
            await logged(front, "settings changed: --worker, --max-inflight, --queue-size")
            refused = await client.post("/v1/completions", json=BODY)
            assert refused.status_code == 429
            assert b"[DONE]" in (await long).content
            await joined(client, 2)
            (rank,) = (await rows(client))[one]["ranks"]
            assert rank["blocks"]["GPU"]
            assert rank["resets"] == resets
            path.write_text(f"workers: [{two}]\n")

            async def left() -> bool:
                return set(await rows(client)) == {two}

            await until_awaited(left, "the first worker has left")


async def test_keys_and_log_level_change_and_what_needs_a_restart_is_named_once(tmp_path: Path) -> None:
    async with fleet(count=1) as workers:
        url = workers.workers[0]["url"]
        path = tmp_path / "router.yaml"
        base = f"workers: [{url}]\n"
        async with configured(path, base + "api_key: [first-key]\n", "--retries", "1") as (front, client):

            async def opens(key: str) -> bool:
                answer = await client.get("/workers", headers={"authorization": f"Bearer {key}"})
                return answer.status_code == 200

            assert await opens("first-key")
            path.write_text(base + "api_key: [second-key]\npolicy: random\nretries: 5\nadmin_key: short\n")
            await logged(front, "the settings stay what they were: ")
            assert await opens("first-key")
            changed = base + "api_key: [second-key]\npolicy: random\nretries: 5\n"
            path.write_text(changed)
            await until_awaited(lambda: opens("second-key"), "the key was replaced")
            assert not await opens("first-key")
            await logged(front, "settings changed that need a restart: --policy")
            front.process.send_signal(signal.SIGHUP)
            path.write_text(changed + "log_level: warning\n")
            await until(lambda: count(front, "read the keys") >= 2)
            path.write_text(base + "api_key: [third-keyy]\npolicy: random\nlog_level: warning\n")
            await until_awaited(lambda: opens("third-keyy"), "the key was replaced")
            assert count(front, "need a restart") == 1
            assert count(front, "--retries") == 0
            assert not any(b"second-key" in line for line in front.log)


async def test_the_last_key_is_not_taken_away_and_nobody_says_it_was(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    base = "workers: [http://127.0.0.1:1]\n"
    async with configured(path, base + "api_key: [only-one-key]\n") as (front, client):
        path.write_text(base)
        await logged(front, "the keys stay what they were: --api-key: expected a key, found none")
        path.write_text(base + "retries: 5\n")
        await logged(front, "settings changed: --retries")
        assert (await client.get("/workers")).status_code == 401
        path.write_text(base + "api_key: [only-one-key]\nretries: 4\n")
        await until(lambda: count(front, "settings changed: --retries") == 2)
        assert not count(front, "settings changed: --api-key")
        assert (await client.get("/workers", headers={"x-api-key": "only-one-key"})).status_code == 200
