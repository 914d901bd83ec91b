"""How requests end that cannot go on: the router stops, or workers go with them."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.e2e.processes import both, joined, router
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

BODY = b'{"model": "stand-in", "prompt": [1, 2, 3], "stream": true}'
REQUEST = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
INFO = json.dumps({"model_path": "stand-in", "tokenizer_path": "x", "kv_events": None}).encode()


class Worker:
    """Says who it is, and answers a prompt with `begin` and nothing more, or by closing when that is None."""

    def __init__(self, begin: bytes | None) -> None:
        self.begin = begin
        self.asked = 0
        self.url = ""

    @asynccontextmanager
    async def up(self) -> AsyncIterator[Worker]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with server:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while not (await reader.readuntil(b"\r\n\r\n")).startswith(b"POST"):
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(INFO) + INFO)
            self.asked += 1
            if self.begin is not None:
                writer.write(self.begin)
                while await reader.read(65536):
                    pass


@asynccontextmanager
async def stopping(*workers: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, int]]:
    """Run a router that leaves requests next to no time at its stop, and give its port."""
    arguments = ["-m", "router", "serve", "--port", "0", "--grace-seconds", "1"]
    for worker in workers:
        arguments += ["--worker", worker]
    process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=asyncio.subprocess.PIPE)
    assert process.stderr is not None
    while b"listening on" not in (line := await process.stderr.readline()):
        assert line
    port = int(line.rsplit(b":", 1)[1])
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        await joined(client, len(workers))
    try:
        yield process, port
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize("begin", [EVENTS + b"9\r\ndata: 1\n\n\r\n", b""])
async def test_a_stop_ends_answers_so_that_their_clients_can_tell(begin: bytes) -> None:
    worker = Worker(begin)
    async with worker.up(), stopping(worker.url) as (process, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(REQUEST)
        await until(lambda: worker.asked)
        if begin:
            await reader.readuntil(b"data: 1")
        process.send_signal(signal.SIGTERM)
        rest = await reader.read()
        writer.close()
        _, log = await process.communicate()
        assert process.returncode == 0
    assert b"Traceback" not in log
    assert b'"code":"stopping"' in rest
    if begin:
        assert b"\n\ndata: {" in rest
        assert rest.endswith(b"\r\n0\r\n\r\n")
    else:
        assert rest.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nretry-after: 1\r\n" in rest


@pytest.mark.parametrize(("retries", "sends"), [("0", 1), ("1", 2), ("4", 2)])
async def test_a_request_that_workers_die_of_does_not_go_round(retries: str, sends: int) -> None:
    workers = [Worker(None) for _ in range(3)]
    async with contextlib.AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker.up())
        urls = [worker.url for worker in workers]
        front = await stack.enter_async_context(router(urls, "--retries", retries))
        client: Any = await stack.enter_async_context(httpx2.AsyncClient(base_url=front.url))
        await joined(client, 3)
        answer = await client.post("/v1/completions", content=BODY)
        assert answer.status_code == 502
        assert sum(worker.asked for worker in workers) == sends


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_router_told_to_stop_as_it_starts_ends_well(number: signal.Signals) -> None:
    for _ in range(5):
        async with router([], "--admin-key", "a-key-of-sixteen-characters") as front:
            front.process.send_signal(number)
            assert await front.process.wait() == 0
        assert not any(b"Traceback" in line for line in front.log)


async def test_a_router_that_will_leave_says_so_and_serves_on_until_then() -> None:
    options = ("--leave-seconds", "60")
    async with both(count=1, router_options=options) as (_, front, client):
        assert (await client.get("/ready")).status_code == 200
        front.process.send_signal(signal.SIGTERM)

        async def leaving() -> bool:
            return (await client.get("/ready")).status_code == 503

        await until_awaited(leaving, "a router that is not ready any more")
        assert "stopping" in (await client.get("/ready")).json()["error"]["message"]
        answer = await client.post("/v1/completions", content=BODY.replace(b"true", b"false"))
        assert answer.status_code == 200
        front.process.send_signal(signal.SIGTERM)
        assert await front.process.wait() == 0


async def test_a_log_that_nobody_reads_holds_up_neither_requests_nor_the_end() -> None:
    reading, writing = os.pipe()
    fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, 4096)
    worker = Worker(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{}")
    async with worker.up():
        arguments = ("-m", "router", "serve", "--port", "0", "--worker", worker.url, "--log-requests", "1")
        process = await asyncio.create_subprocess_exec(sys.executable, *arguments, stderr=writing)
        os.close(writing)
        log = b""
        while b"listening on" not in log:
            log += await asyncio.to_thread(os.read, reading, 4096)
        url = log[log.index(b"http://127.0.0.1") :].split()[0].decode()
        async with httpx2.AsyncClient(base_url=url, timeout=30.0) as client:
            await joined(client, 1)
            for _ in range(100):  # each is a line of about a hundred bytes
                assert (await client.post("/v1/completions", content=BODY)).status_code == 200
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0
    os.close(reading)
