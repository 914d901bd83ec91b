"""Smuggling shapes and other edge cases of HTTP/1.1, byte by byte, over real sockets."""

from __future__ import annotations

import asyncio
import json
import random
import re

import pytest

from router.proxy.edge import EdgeProtocol
from router.proxy.limits import ClientLimits
from router.proxy.upstream import Upstream
from tests.proxy.again import until_heard
from tests.proxy.scripted import OK, Worker
from tests.proxy.serving import Proxy, served
from tests.proxy.shapes import HOST, REFUSED, TAKEN
from tests.waiting import DEADLINE_SECONDS

# Read as a request of its own only by a server that is still in step.
NEXT = b"GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
CODES = {414: "uri_too_long", 431: "headers_too_large", 501: "not_supported", 505: "not_supported"}
REFUSALS = [(status, wire) for status, wires in REFUSED.items() for wire in wires]


class Edge(EdgeProtocol):
    limits = ClientLimits(linger_seconds=0.01)


async def told(port: int, *pieces: bytes) -> bytes:
    """Return everything that is answered, up to the end of the connection."""
    return await until_heard(lambda: _told(port, *pieces))


async def _told(port: int, *pieces: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(DEADLINE_SECONDS):
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)
        data = await reader.read()
    writer.close()
    return data


def statuses(data: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d+) ", data)]


def asked(worker: Worker) -> list[tuple[bytes, bytes]]:
    return [
        (head.rpartition(b" HTTP/1.1\r\n")[0].split(b" HTTP/1.1\r\n")[0], body)
        for _, head, body in worker.requests
    ]


def torn(wire: bytes) -> list[bytes]:
    """Cut the bytes at random places, the same ones in every run."""
    rng = random.Random(len(wire))
    cuts = sorted(rng.sample(range(1, len(wire)), min(len(wire) - 1, 5)))
    return [wire[start:end] for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True)]


async def test_what_is_no_request_is_refused_and_no_worker_hears_of_it() -> None:
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), Edge) as port:
        for status, wire in REFUSALS:
            data = await told(port, wire + NEXT)
            assert statuses(data) == [status], wire[:200]
            head, _, body = data.partition(b"\r\n\r\n")
            assert b"\r\nconnection: close" in head
            error = json.loads(body)["error"]
            assert error["type"] == "invalid_request_error"
            assert error["code"] == CODES.get(status, "invalid_value")
            assert not worker.requests, wire[:200]


async def test_what_is_refused_is_refused_however_it_is_cut() -> None:
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), Edge) as port:
        for status, wire in REFUSALS:
            found = statuses(await told(port, *torn(wire + NEXT)))
            assert len(found) == 1, wire[:200]
            assert found[0] == status or status in {414, 431, 501}, wire[:200]
        assert not worker.requests


@pytest.mark.parametrize("cut", [False, True])
async def test_what_is_a_request_is_the_same_request_for_the_worker(*, cut: bool) -> None:
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), Edge) as port:
        for wire, line, body in TAKEN:
            worker.requests.clear()
            pieces = torn(wire + NEXT) if cut else [wire + NEXT]
            data = await told(port, *pieces)
            assert [status for status in statuses(data) if status != 100] == [200, 200], wire[:200]
            assert asked(worker) == [(line, body), (b"GET /next", b"")], wire[:200]


async def test_a_worker_gets_one_host_one_length_and_no_coding() -> None:
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), Edge) as port:
        for wire, _, _ in TAKEN:
            await told(port, wire + NEXT)
        for _, head, body in worker.requests:
            lines = head.lower().split(b"\r\n")[1:-2]
            names = [line.partition(b":")[0] for line in lines]
            assert names.count(b"host") == 1
            assert names.count(b"content-length") == 1 if body else names.count(b"content-length") <= 1
            assert not {b"transfer-encoding", b"expect", b"connection", b"upgrade"} & set(names)


async def test_an_absolute_uri_names_the_host_that_was_asked_for() -> None:
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), Edge) as port:
        await told(port, b"GET http://b:8/g HTTP/1.1\r\n" + HOST + b"\r\n" + NEXT)
        heads = [head.split(b"\r\n") for _, head, _ in worker.requests]
    assert b"x-forwarded-host: b:8" in heads[0]
    assert b"x-forwarded-host: a" in heads[1]
    assert all(b"x-forwarded-for: 127.0.0.1" in head for head in heads)


async def test_refusals_between_requests_keep_the_order() -> None:
    good = b"GET /g HTTP/1.1\r\nhost: a\r\n\r\n"
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), Edge) as port:
        for _, wire in REFUSALS:
            worker.requests.clear()
            found = statuses(await told(port, good + good + wire + NEXT))
            assert found[:2] == [200, 200]
            assert len(found) <= 3
            assert b"/next" not in [line for line, _ in asked(worker)]
            assert len(worker.requests) == 2


async def test_without_a_host_an_old_client_is_served() -> None:
    async with Worker.up(OK) as worker, served(Proxy(Upstream(worker.url)), Edge) as port:
        assert statuses(await told(port, b"GET /g HTTP/1.0\r\n\r\n")) == [200]
        assert b"x-forwarded-host" not in worker.requests[0][1]
