"""Real processes for end-to-end tests: a fleet of stand-ins and the router, as a user starts them."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

from tests.forked import Forked, forked
from tests.waiting import DEADLINE_SECONDS, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

MODES = [  # of both engines; a paused vLLM publishes nothing, so that it has one mode only
    ("--engine", "sglang", "--paused-loop", "legacy"),
    ("--engine", "sglang", "--paused-loop", "publishing"),
    ("--engine", "vllm"),
]
_LISTENING = re.compile(r"listening on (https?://[^\s\"]+)")


@dataclass(slots=True)
class Running:
    """One process of ours."""

    process: Forked
    url: str
    workers: list[dict[str, Any]]
    log: list[bytes] = field(default_factory=list)

    def kill(self) -> None:
        """End it as a machine that loses power would."""
        self.process.kill()


@asynccontextmanager
async def fleet(*options: str, count: int = 2) -> AsyncIterator[Running]:
    """Run `python -m workers fleet`."""
    async with _process("workers", "fleet", "--count", str(count), *options, says=False) as process:
        ready = json.loads(await process.stdout.readline())
        yield Running(process, "", ready["workers"])


@asynccontextmanager
async def router(workers: Sequence[str], *options: str) -> AsyncIterator[Running]:
    """Run `python -m router serve` in front of workers, given as on its command line."""
    arguments = ["serve", "--port", "0", "--probe-seconds", "0.05", *options]
    for worker in workers:
        arguments += ["--worker", worker]
    async with _process("router", *arguments) as process:
        url = await _listening(process)
        running = Running(process, url, [])
        drain = asyncio.create_task(_drain(running))
        yield running
        drain.cancel()


@asynccontextmanager
async def recording(workers: Sequence[str], directory: Path) -> AsyncIterator[Running]:
    """Run `python -m router record` on workers."""
    arguments = ["record", "--out", str(directory), "--probe-seconds", "0.05"]
    for worker in workers:
        arguments += ["--worker", worker]
    async with _process("router", *arguments) as process:
        running = Running(process, "", [])
        drain = asyncio.create_task(_drain(running))
        yield running
        drain.cancel()


@asynccontextmanager
async def both(
    *fleet_options: str, count: int = 2, router_options: Sequence[str] = ()
) -> AsyncIterator[tuple[Running, Running, httpx2.AsyncClient]]:
    """Run a fleet, the router in front of it, and a client of the router; all workers have joined."""
    async with AsyncExitStack() as stack:
        workers = await stack.enter_async_context(fleet(*fleet_options, count=count))
        urls = [worker["url"] for worker in workers.workers]
        front = await stack.enter_async_context(router(urls, *router_options))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=front.url, timeout=30.0))
        await joined(client, count)
        yield workers, front, client


async def joined(client: httpx2.AsyncClient, count: int, seconds: float = DEADLINE_SECONDS) -> None:
    """Wait until `count` workers take traffic and their views are live, where they have events."""

    async def ready() -> bool:
        rows = (await client.get("/workers")).json()["workers"]
        live = [row for row in rows if row["state"] == "ready" and _live(row)]
        return len(live) >= count

    await until_awaited(ready, f"{count} ready workers", seconds)


def _live(row: dict[str, Any]) -> bool:
    """Whether every rank is subscribed; without a replay a quiet one has nothing to be live with."""
    return all(
        rank["view"] in {"live", "silent"} or rank["why"].startswith("no batch has come yet")
        for rank in row["ranks"]
    )


@asynccontextmanager
async def _process(module: str, *arguments: str, says: bool = True) -> AsyncIterator[Forked]:
    process = await forked(module, *arguments, says=says)
    try:
        yield process
    finally:
        process.terminate()
        await process.wait()


async def _listening(process: Forked) -> str:
    lines = []
    while line := (await process.stderr.readline()).decode():
        lines.append(line)
        found = _LISTENING.search(line)
        if found:
            return found[1]
    raise AssertionError(f"the router did not start: {''.join(lines)}")


async def _drain(running: Running) -> None:
    """Read on, so that the process never waits for somebody to read its log."""
    while line := await running.process.stderr.readline():
        running.log.append(line)
