"""A weight sync that is cut, because the router stops or a process of it dies, leaves no engine paused."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.e2e.processes import Running, joined, router
from tests.e2e.scripted import engine_up
from tests.e2e.test_processes import BEARER, KEY, all_up, children, stream
from tests.proxy.scripted import answer
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.proxy.scripted import Peer

PAUSE, FLUSH, CONTINUE = "/pause_generation", "/flush_cache", "/continue_generation"
OPTIONS = ("--admin-key", KEY, "--grace-seconds", "1")
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


class Engine:
    """Does what it is told, but what `hangs` waits until the gate is open. `paused`: it stands still."""

    def __init__(self, hangs: str) -> None:
        self.hangs = hangs
        self.gate = asyncio.Event()
        self.called: list[str] = []
        self.paused = False

    async def __call__(self, peer: Peer) -> None:
        path = peer.head.split()[1].decode()
        self.called.append(path)
        if path == "/v1/completions":
            await peer.send(EVENTS + b"9\r\ndata: 1\n\n\r\n")
            await peer.until_gone()
            return
        if path == PAUSE:
            self.paused = True
        if path == self.hangs:
            await self.gate.wait()
        if path == CONTINUE:
            self.paused = False
        await peer.send(answer(b"{}"))


@asynccontextmanager
async def syncing(
    hangs: str, *options: str
) -> AsyncIterator[tuple[Running, list[Engine], asyncio.Task[httpx2.Response]]]:
    """Run a router whose weight sync has come to what hangs, at both of its engines."""
    engines = [Engine(hangs), Engine(hangs)]
    async with (
        engine_up(engines[0]) as one,
        engine_up(engines[1]) as two,
        router([one.url, two.url], *OPTIONS, *options) as front,
        httpx2.AsyncClient(base_url=front.url, headers=BEARER, timeout=60.0) as client,
    ):
        await joined(client, 2)
        if options:
            await all_up(client)
        sync = asyncio.create_task(client.post("/admin/weight_sync"))
        await until(lambda: all(hangs in engine.called for engine in engines), "what hangs")
        yield front, engines, sync
        for engine in engines:
            engine.gate.set()
        sync.cancel()
        await asyncio.gather(sync, return_exceptions=True)


def is_stopping(got: httpx2.Response) -> bool:
    error = got.json()["error"]
    return (got.status_code, error["code"], error["type"]) == (503, "stopping", "service_unavailable")


@pytest.mark.parametrize(
    ("hangs", "processes"), [(PAUSE, ()), (FLUSH, ()), (CONTINUE, ()), (FLUSH, ("--processes", "2"))]
)
async def test_a_router_that_stops_continues_what_it_has_paused(
    hangs: str, processes: tuple[str, ...]
) -> None:
    async with syncing(hangs, *processes) as (front, engines, sync):
        front.process.send_signal(signal.SIGTERM)
        assert is_stopping(await sync)
        if hangs == CONTINUE:
            for engine in engines:
                engine.gate.set()
        assert await front.process.wait() == 0
        assert [engine.paused for engine in engines] == [False, False]
        assert not any(b"Traceback" in line for line in front.log)


async def test_what_could_not_be_continued_is_said_and_holds_the_end_up_for_seconds_only() -> None:
    async with syncing(CONTINUE) as (front, engines, sync):
        front.process.send_signal(signal.SIGTERM)
        assert is_stopping(await sync)
        assert await front.process.wait() == 0
        assert [engine.paused for engine in engines] == [True, True]
        await until(lambda: sum(b"has left it paused" in line for line in front.log) == len(engines))


async def test_a_process_that_dies_during_a_sync_has_its_engines_continued_by_another() -> None:
    async with syncing(FLUSH, "--processes", "2") as (front, engines, sync):
        await until(lambda: any(b"pause answered 200" in line for line in front.log), "who is at it")
        (place,) = {int(line.split(b"[")[1][:1]) for line in front.log if b"pause answered 200" in line}
        os.kill(children(front)[place], signal.SIGKILL)
        await until(lambda: not any(engine.paused for engine in engines), "the engines to go on")
        with contextlib.suppress(httpx2.HTTPError):
            await sync
        await until(lambda: any(b"during a weight sync" in line for line in front.log), "that it is told")
        assert sum(b"during a weight sync" in line for line in front.log) == 1
        for engine in engines:
            engine.gate.set()


async def test_a_removal_that_the_stop_cuts_short_is_answered() -> None:
    engine = Engine("")
    async with (
        engine_up(engine) as worker,
        router([worker.url], *OPTIONS) as front,
        httpx2.AsyncClient(base_url=front.url, headers=BEARER, timeout=60.0) as client,
    ):
        await joined(client, 1)
        under_way = await stream(front)
        removal = asyncio.create_task(client.delete(f"/admin/workers/{worker.url}"))
        await until(lambda: any(b"draining" in line for line in front.log), "the removal")
        front.process.send_signal(signal.SIGTERM)
        assert is_stopping(await removal)
        await under_way
        assert await front.process.wait() == 0
        assert not any(b"Traceback" in line for line in front.log)
