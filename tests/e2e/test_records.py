"""Records of real processes: what a re-run of one finds is what the router had done."""

from __future__ import annotations

import asyncio
import resource
import signal
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING

import httpx2
import pytest

from router.records.replay import replay
from tests.e2e.asking import Load, no_load
from tests.e2e.pairs import body, pairs
from tests.e2e.processes import both, fleet, recording
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from pathlib import Path

KEY = "a-key-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {KEY}"}
FLEETS = [
    ("--engine", "sglang", "--page-size", "1", "--dp", "2", "--bigram"),
    ("--engine", "sglang", "--tier", "host=2x", "--fault", "lose=0.1", "--load-port", "0"),
    ("--engine", "vllm", "--dp", "2", "--fault", "lose=0.05"),
]


@pytest.mark.parametrize("options", FLEETS)
async def test_a_rerun_decides_as_the_router_did(tmp_path: Path, options: tuple[str, ...]) -> None:
    """With lost batches, replays of the engines', flushes under load and a weight sync."""
    router_options = ("--record", str(tmp_path), "--admin-key", KEY)
    async with both(*options, router_options=router_options) as (_, front, client):
        load = Load(front.url, 6)
        for _ in range(2):
            await load.goes_on(len(load.answers) + 30)
            synced = await client.post("/admin/weight_sync", json={}, headers=BEARER)
            assert synced.status_code == 200
        await load.goes_on(len(load.answers) + 30)
        answers = await load.stop()
    (found,) = replay(str(tmp_path), ["round_robin"])
    assert found.differences == []
    assert found.ended
    assert found.decisions >= len(answers) > 90
    assert found.rows > 0
    assert sum(sum(row.resets.values()) for row in found.views) >= 4
    assert [one.requests for one in found.policies] == [found.decisions] * 2


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_a_rerun_of_pairs_decides_as_the_router_did(tmp_path: Path, engine: str) -> None:
    async with pairs(engine, prefill=2, decode=2, router_options=("--record", str(tmp_path))) as found:
        prompts = [[(user * 7 + index) % 250 + 1 for index in range(64)] for user in range(12)]
        answers = await asyncio.gather(
            *(
                found.client.post("/v1/completions", json=body(prompt=prompts[number % 12]))
                for number in range(40)
            )
        )
        assert {answer.status_code for answer in answers} == {200}
        await found.idle()
    (replayed,) = replay(str(tmp_path), [])
    assert replayed.differences == []
    assert replayed.decisions >= 80


async def test_what_was_recorded_before_a_kill_can_be_replayed(tmp_path: Path) -> None:
    async with both(router_options=("--record", str(tmp_path))) as (_, front, client):
        begun = await metric(client, "kv_router_record_bytes_total")
        load = Load(front.url, 4)
        await load.goes_on(50)
        await load.stop()

        async def more() -> bool:
            return await metric(client, "kv_router_record_bytes_total") != begun

        await until_awaited(more, "another block")
        front.kill()
        await front.process.wait()
    (found,) = replay(str(tmp_path), [])
    assert (found.differences, found.notes, found.ended) == ([], [], False)
    assert found.decisions > 0
    shorten(tmp_path, 7)
    (found,) = replay(str(tmp_path), [])
    assert (found.differences, len(found.notes), found.ended) == ([], 1, False)


def shorten(directory: Path, count: int) -> None:
    """Take away the end of a record's last part, as if it had not been written in time."""
    path = max(directory.iterdir())
    path.write_bytes(path.read_bytes()[:-count])


async def test_event_streams_are_recorded_without_serving(tmp_path: Path) -> None:
    async with fleet("--engine", "sglang") as workers, httpx2.AsyncClient() as client:
        urls = [worker["url"] for worker in workers.workers]
        async with recording(urls, tmp_path) as process:
            await until(lambda: any(b"ready" in line for line in process.log), "a ready worker")
            for number in range(8):
                prompt = [number + index % 250 + 1 for index in range(100)]
                posted = await client.post(
                    f"{urls[number % 2]}/v1/completions",
                    json={"model": "stand-in", "prompt": prompt, "max_tokens": 2},
                )
                assert posted.status_code == 200
            truth = [await held(client, url) for url in urls]
            process.process.send_signal(signal.SIGTERM)
            assert await process.process.wait() == 0
    (found,) = replay(str(tmp_path), [])
    assert found.differences == []
    assert found.ended
    assert (found.decisions, found.rows >= 2) == (0, True)
    assert sorted(row.blocks.get("GPU", 0) for row in found.views) == sorted(truth)


async def held(client: httpx2.AsyncClient, url: str) -> int:
    """Return how many blocks a worker says it really holds."""
    ranks = (await client.get(f"{url}/_truth")).json()["ranks"]
    return sum(len(rank["blocks"]) for rank in ranks)


async def test_a_full_disk_costs_the_record_and_no_request(tmp_path: Path) -> None:
    async with both(router_options=("--record", str(tmp_path))) as (_, front, client):
        assert 'state="on"' in await metric(client, "kv_router_record_state")
        resource.prlimit(front.process.pid, resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
        load = Load(front.url, 4)

        async def ended() -> bool:
            return 'state="ended"' in await metric(client, "kv_router_record_state")

        await until_awaited(ended, "the end of the record")
        await load.goes_on(len(load.answers) + 50)
        assert all(answer.whole for answer in await load.stop())
        await until_awaited(partial(no_load, client))
        await until(lambda: b"recording has stopped: File too large" in b"".join(front.log))
    assert b"".join(front.log).count(b"recording has stopped") == 1
    (found,) = replay(str(tmp_path), [])
    assert found.differences == []


async def metric(client: httpx2.AsyncClient, name: str) -> str:
    lines = (await client.get("/metrics")).text.splitlines()
    return next((line for line in lines if line.startswith(name)), "")


def test_a_directory_that_nothing_can_be_written_to_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    ended = subprocess.run(
        [
            *(sys.executable, "-m", "router", "serve", "--port", "0", "--worker", "http://127.0.0.1:1"),
            *("--record", str(tmp_path / "file")),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stderr.splitlines()[-1].startswith(f"kv-router: {tmp_path}/file: no record can be kept")


async def test_each_process_keeps_a_session_of_its_own(tmp_path: Path) -> None:
    router_options = ("--record", str(tmp_path), "--processes", "2")
    async with both(router_options=router_options) as (_, front, client):

        async def two() -> bool:
            return await metric(client, "kv_router_processes ") == "kv_router_processes 2.0"

        await until_awaited(two, "two processes")
        load = Load(front.url, 8)
        await load.goes_on(80)
        answers = await load.stop()
    found = replay(str(tmp_path), [])
    assert len(found) == 2
    assert [one.differences for one in found] == [[], []]
    assert sum(one.decisions for one in found) >= len(answers)
    assert all("one of several processes" in "".join(one.notes) for one in found)
