"""A router that may open no more files: over real sockets, with the system's own limit."""

from __future__ import annotations

import asyncio
import contextlib
import resource
from itertools import count
from pathlib import Path

import httpx2

from tests.e2e.asking import rows
from tests.e2e.processes import Running, joined, router
from tests.e2e.stub import GOOD, raw, stub
from tests.waiting import until, until_awaited

BODY = {"model": "stand-in", "prompt": [1]}


def allow(front: Running, most: int | None) -> None:
    """Let a process have so many files, None: those that it has and no more."""
    pid = front.process.pid
    if most is None:
        held = {int(each.name) for each in Path(f"/proc/{pid}/fd").iterdir()}
        most = next(number for number in count() if number not in held)
    _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (most, hard))


async def test_no_descriptors_are_the_routers_fault_and_held_against_no_worker() -> None:
    async with (
        stub() as worker,
        router([worker.url], "--probe-seconds", "0.05") as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 1)
        worker.answer = raw(200, GOOD, b"connection: close")

        async def starved() -> bool:
            allow(front, None)
            answer = await client.post("/v1/completions", json=BODY)
            if answer.status_code == 200:
                return False
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["code"] == "out_of_descriptors"
            return True

        await until_awaited(starved, "a router without descriptors")
        asked = worker.asked
        for _ in range(10):
            assert (await client.post("/v1/completions", json=BODY)).status_code == 503
        row = (await rows(client))[worker.url]
        assert (row["state"], row["breaker"]["state"], row["breaker"]["failures"]) == ("ready", "closed", {})
        assert worker.asked == asked
        allow(front, 256)
        assert (await client.post("/v1/completions", json=BODY)).status_code == 200
        await until(lambda: any(b"no file descriptor" in line for line in front.log))
        assert sum(b"no file descriptor" in line for line in front.log) == 1


async def test_clients_that_cannot_be_let_in_are_told_of_in_the_log_and_let_in_later() -> None:
    async with stub() as worker, router([worker.url]) as front:
        async with httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            allow(front, None)

            async def is_told() -> bool:
                with contextlib.suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
                    writer.close()
                return any(b"no file descriptor" in line for line in front.log)

            await until_awaited(is_told, "a line about clients that cannot be let in")
            allow(front, 256)
        async with httpx2.AsyncClient(base_url=front.url) as client:
            assert (await client.get("/health")).status_code == 200
