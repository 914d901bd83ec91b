"""The processes of a demo: a fleet of stand-ins, and a router in front of it."""

from __future__ import annotations

import asyncio
import re
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from router.errors import UpstreamFailed
from router.proxy.fetch import fetch
from router.proxy.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

_LISTENING = re.compile(r"listening on (http://\S+)")
_LIMIT_SECONDS = 60.0
_POLL_SECONDS = 0.002


class DemoError(Exception):
    """The demo cannot go on; the message is for the person who started it."""


@asynccontextmanager
async def fleet(count: int, *options: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Run stand-ins in one process; yields what its ready line says of each."""
    async with _process("workers", "fleet", "--count", str(count), *options) as process:
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        line = await process.stdout.readline()
        if not line:
            raise DemoError("the stand-in workers did not start")
        yield msgspec.json.decode(line)["workers"]


@asynccontextmanager
async def router(workers: Sequence[str], policy: str) -> AsyncIterator[Upstream]:
    """Run a router in front of workers; yields a client of it once it can route."""
    given = [text for url in workers for text in ("--worker", url)]
    options = ["--port", "0", "--policy", policy, "--probe-seconds", "0.2"]
    async with _process("router", "serve", *options, *given) as process:
        client = Upstream(await _listening(process))
        reading = asyncio.create_task(_read_on(process))
        try:
            await until(lambda: _all_joined(client, len(workers)))
            yield client
        finally:
            reading.cancel()
            await client.close()


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Return once the condition is true, asked over and over: it is another process's. Or TimeoutError."""
    async with asyncio.timeout(_LIMIT_SECONDS):
        while not await condition():  # noqa: ASYNC110 - no event reaches us from another process
            await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def _process(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *arguments, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.communicate()


async def _listening(process: asyncio.subprocess.Process) -> str:
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    said = ""
    while line := (await process.stderr.readline()).decode():
        said = line.strip()
        if found := _LISTENING.search(line):
            return found[1]
    raise DemoError(f"the router did not start: {said}")


async def _read_on(process: asyncio.subprocess.Process) -> None:
    """Keep the log's pipe empty, so that the process never waits for a reader."""
    assert process.stderr is not None  # noqa: S101 - it is a pipe
    while await process.stderr.readline():
        pass


async def _all_joined(client: Upstream, count: int) -> bool:
    try:
        rows = (await fetch(client, "GET", "/workers", timeout=5.0)).json()["workers"]
    except UpstreamFailed:
        return False
    joined = sum(row["state"] == "ready" and row["ranks"][0]["view"] == "live" for row in rows)
    return bool(joined == count)
