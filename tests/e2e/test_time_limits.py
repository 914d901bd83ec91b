"""Time limits, for all routes and for one, over real sockets: before the first byte 504, after it an end."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.e2e.processes import joined, router
from tests.e2e.scripted import engine_up, posts
from tests.proxy.scripted import Peer, Worker, answer
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.proxy.scripted import Script

BODY = b'{"model": "stand-in", "prompt": [1, 2, 3]}'
EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b"9\r\ndata: 1\n\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun"


async def hang(peer: Peer) -> None:
    await peer.until_gone()


async def begin(peer: Peer) -> None:
    await peer.send(EVENTS + EVENT)
    await peer.until_gone()


async def begin_plainly(peer: Peer) -> None:
    await peer.send(PLAIN)
    await peer.until_gone()


async def trickle(peer: Peer) -> None:
    """Send events for ever, each well within every limit on a pause."""
    await peer.send(EVENTS)
    while True:
        await peer.send(EVENT)
        await asyncio.sleep(0.01)


async def ok(peer: Peer) -> None:
    await peer.send(answer(b"{}"))


@asynccontextmanager
async def front(script: Script, *options: str) -> AsyncIterator[tuple[Worker, httpx2.AsyncClient]]:
    async with (
        engine_up(script) as worker,
        router([worker.url], *options) as process,
        httpx2.AsyncClient(base_url=process.url, timeout=30.0) as client,
    ):
        await joined(client, 1)
        yield worker, client


async def idle(client: httpx2.AsyncClient) -> bool:
    rows = (await client.get("/workers")).json()["workers"]
    return all(row["inflight_requests"] == row["inflight_tokens"] == 0 for row in rows)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--first-byte-seconds", "0.2", "--retries", "0"), "worker_timeout"),
        (("--route-limit", "/v1/completions,first-byte=0.2", "--retries", "0"), "worker_timeout"),
        (("--total-seconds", "0.2"), "total_timeout"),
        (("--route-limit", "/v1/completions,total=0.2"), "total_timeout"),
        (("--total-seconds", "60", "--route-limit", "/v1/completions,total=0.2"), "total_timeout"),
    ],
)
async def test_before_the_first_byte_a_limit_is_a_504(options: tuple[str, ...], code: str) -> None:
    async with front(hang, *options) as (worker, client):
        got = await client.post("/v1/completions", content=BODY)
        assert (got.status_code, got.json()["error"]["code"]) == (504, code)
        assert got.json()["error"]["type"] == "upstream_error"
        assert len(posts(worker)) == 1
        await until_awaited(lambda: idle(client))


@pytest.mark.parametrize(
    ("script", "options", "code"),
    [
        (begin, ("--idle-seconds", "0.2"), "worker_timeout"),
        (begin, ("--route-limit", "/v1/completions,idle=0.2"), "worker_timeout"),
        (begin, ("--total-seconds", "0.3"), "total_timeout"),
        (trickle, ("--route-limit", "/v1/completions,idle=5,total=0.3"), "total_timeout"),
    ],
)
async def test_after_it_a_stream_ends_with_an_error_event(
    script: Script, options: tuple[str, ...], code: str
) -> None:
    async with front(script, *options) as (worker, client):
        got = await client.post("/v1/completions", content=BODY)
        assert got.status_code == 200
        assert got.text.startswith("data: 1\n\n")
        last = got.text.rpartition("data: ")[2]
        assert f'"code":"{code}"' in last
        assert worker.open <= 2  # the stream's connection is gone, those of probes may be there
        await until_awaited(lambda: idle(client))


@pytest.mark.parametrize("options", [("--idle-seconds", "0.2"), ("--total-seconds", "0.3")])
async def test_after_it_anything_else_is_visibly_cut(options: tuple[str, ...]) -> None:
    async with front(begin_plainly, *options) as (_, client):
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.post("/v1/completions", content=BODY)
        await until_awaited(lambda: idle(client))


async def test_a_limit_of_one_route_is_not_that_of_another() -> None:
    limits = ("--route-limit", "/v1/embeddings,first-byte=0.2,total=0.5", "--route-limit", "/score,total=0.2")
    async with front(hang, *limits, "--retries", "0") as (_, client):
        longer = asyncio.create_task(client.post("/v1/completions", content=BODY))
        for path in ("/v1/embeddings", "/v1/%65mbeddings?a=b", "/score"):
            got = await client.post(path, json={"model": "stand-in", "input": "x"})
            assert got.status_code == 504, path
        assert not longer.done()
        longer.cancel()
        await asyncio.gather(longer, return_exceptions=True)
        await until_awaited(lambda: idle(client))


async def test_a_route_can_be_freed_of_a_limit_that_holds_for_all() -> None:
    async def late(peer: Peer) -> None:
        await asyncio.sleep(0.4)
        await peer.send(answer(b"{}"))

    options = ("--total-seconds", "0.2", "--first-byte-seconds", "0.2", "--retries", "0")
    free = ("--route-limit", "/v1/completions,total=0,first-byte=0")
    async with front(late, *options, *free) as (_, client):
        assert (await client.post("/v1/completions", content=BODY)).status_code == 200
        assert (await client.post("/v1/embeddings", json={"model": "stand-in"})).status_code == 504


async def test_a_request_that_does_not_come_in_time_is_the_clients_fault() -> None:
    async with front(ok, "--total-seconds", "0.2") as (worker, client):
        reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: 50\r\n\r\n{")
        answered = await reader.readuntil(b"}}")
        assert answered.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in answered
        writer.close()
        assert not posts(worker)


async def test_a_request_within_its_limits_is_answered_as_ever() -> None:
    options = ("--total-seconds", "30", "--first-byte-seconds", "30", "--idle-seconds", "30")
    async with front(ok, *options) as (worker, client):
        for _ in range(20):
            assert (await client.post("/v1/completions", content=BODY)).content == b"{}"
        assert len(posts(worker)) == 20


async def flood(peer: Peer) -> None:
    """Send a stream without end as fast as it is taken."""
    await peer.send(EVENTS)
    while True:
        await peer.send(b"4000\r\n" + bytes(0x4000) + b"\r\n")


async def test_clients_that_do_not_read_hold_their_places_for_a_time_only() -> None:
    options = ("--client-idle-seconds", "0.5", "--max-inflight", "4", "--queue-size", "0")
    async with front(flood, *options) as (worker, client):
        ends = [
            await asyncio.open_connection("127.0.0.1", client.base_url.port, limit=1024) for _ in range(4)
        ]
        for _, writer in ends:
            writer.write(
                b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(BODY)
            )
            writer.write(BODY)
        await until(lambda: len(posts(worker)) == 4)
        await until_awaited(lambda: idle(client), "an empty ledger")
        for _, writer in ends:
            writer.close()
