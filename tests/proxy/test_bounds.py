"""What a client may do to its connection, byte by byte: smuggling, endless heads, stalling, half-closing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from router.proxy.body import read_body
from router.proxy.disconnect import ClientGone
from router.proxy.edge import EdgeProtocol
from router.proxy.limits import ClientLimits
from router.proxy.upstream import Upstream
from tests.proxy.again import until_heard
from tests.proxy.scripted import Peer, Worker
from tests.proxy.serving import Proxy, served
from tests.waiting import DEADLINE_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.proxy.asgi import Receive, Scope, Send
    from router.proxy.cycle import Cycle, Handler

GET = b"GET / HTTP/1.1\r\nhost: a\r\n"
POST = b"POST /v1 HTTP/1.1\r\nhost: a\r\n"
CHUNKED = POST + b"transfer-encoding: chunked\r\n\r\n"
H2C = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMA\r\n"


class Edge(EdgeProtocol):
    limits = ClientLimits(linger_seconds=0.2)


class Quick(EdgeProtocol):
    limits = ClientLimits(head_seconds=0.05, body_seconds=0.05, linger_seconds=0.2)


class Small(EdgeProtocol):
    limits = ClientLimits(pipelined=4)


class Echo:
    """Answers with the request's body, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[bytes, bytes], bytes]] = []
        self.gone = 0
        self.going = asyncio.Event()
        self.going.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive, 1 << 20)
        except ClientGone:
            self.gone += 1
            return
        self.asked.append((scope["method"], scope["path"], dict(scope["headers"]), body))
        await self.going.wait()
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [length]})
        await send({"type": "http.response.body", "body": body})

    @property
    def paths(self) -> list[str]:
        return [path for _, path, _, _ in self.asked]


@contextlib.asynccontextmanager
async def client(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(DEADLINE_SECONDS):
        yield reader, writer
    writer.close()


async def all_of(port: int, *pieces: bytes) -> bytes:
    """Write pieces, each read on its own, and return everything up to the end of the connection."""
    return await until_heard(lambda: _all_of(port, *pieces))


async def _all_of(port: int, *pieces: bytes) -> bytes:
    async with client(port) as (reader, writer):
        # The server may have heard enough before all is written: uvloop raises RuntimeError then.
        with contextlib.suppress(OSError, RuntimeError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0.001)
        return await reader.read()


async def flood(port: int, start: bytes, unit: bytes) -> tuple[int, bytes]:
    """Write `unit` until the server has enough; say how much it took and what it said."""
    async with client(port) as (reader, writer):
        writer.write(start)
        answer = asyncio.create_task(reader.read(65536))
        sent = 0
        while not answer.done():
            writer.write(unit)
            sent += len(unit)
            await writer.drain()
            await asyncio.sleep(0)
        return sent, await answer


# upgrades


@pytest.mark.parametrize("upgrade", [b"h2c", b"websocket", b"TLS/1.0"])
@pytest.mark.parametrize("step", [1, 50, 1000])
async def test_a_body_behind_an_upgrade_is_a_body(
    upgrade: bytes, step: int, caplog: pytest.LogCaptureFixture
) -> None:
    inner = b"GET /smuggled HTTP/1.1\r\nhost: b\r\n\r\n"
    for framing in (
        b"content-length: %d\r\n\r\n%b" % (len(inner), inner),
        b"transfer-encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(inner), inner),
    ):
        wire = POST + b"connection: upgrade\r\nupgrade: " + upgrade + b"\r\n" + framing
        wire += b"GET /next HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
        echo = Echo()
        async with served(echo, Edge) as port:
            pieces = [wire[start : start + step] for start in range(0, len(wire), step)]
            answers = await all_of(port, *pieces)
        assert echo.paths == ["/v1", "/next"]
        assert echo.asked[0][3] == inner
        assert answers.count(b"HTTP/1.1 200") == 2
    assert not caplog.records


async def test_many_upgrades_in_one_read_are_many_requests() -> None:
    echo = Echo()
    async with served(echo, Edge) as port:
        wire = (POST + H2C + b"content-length: 2\r\n\r\n{}") * 900 + GET + b"connection: close\r\n\r\n"
        assert (await all_of(port, wire)).count(b"HTTP/1.1 200") == 901
    assert all(b"upgrade" not in headers for _, _, headers, _ in echo.asked)


async def test_connect_is_refused_and_nothing_after_it_is_read() -> None:
    echo = Echo()
    async with served(echo, Edge) as port:
        answers = await all_of(port, b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n" + GET + b"\r\n")
        assert answers.startswith(b"HTTP/1.1 400 ")
        assert answers.count(b"HTTP/1.1") == 1
    assert not echo.asked


# garbage


async def test_what_is_no_request_is_refused_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    echo = Echo()
    async with served(echo, Edge) as port:
        for garbage in (
            b"SSH-2.0\r\n",
            GET + b"bad header\r\n\r\n",
            b"GET  HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01",
        ):
            answers = await all_of(port, garbage, b"x" * 1000, GET + b"\r\n")
            assert answers.startswith(b"HTTP/1.1 400 "), garbage
            assert answers.count(b"HTTP/1.1 ") == 1
            assert b'"type":"invalid_request_error"' in answers
    assert not echo.asked
    assert not caplog.records


async def test_garbage_behind_requests_ends_the_connection_after_their_answers() -> None:
    for requests in (1, 3):
        echo = Echo()
        echo.going.clear()
        async with served(echo, Edge) as port, client(port) as (reader, writer):
            writer.write((GET + b"\r\n") * requests + b"garbage\r\n\r\n" + GET + b"\r\n")
            await until(lambda echo=echo: echo.asked)  # type: ignore[misc]  # a default has no type here
            echo.going.set()
            answers = await reader.read()
        assert answers.count(b"HTTP/1.1 200") == answers.count(b"HTTP/1.1") == len(echo.asked) == requests


@pytest.mark.parametrize("before", [0, 1, 2])
async def test_a_body_that_is_garbled_is_refused_and_its_request_ends(
    before: int, caplog: pytest.LogCaptureFixture
) -> None:
    echo = Echo()
    async with served(echo, Edge) as port:
        answers = await all_of(port, (GET + b"\r\n") * before + CHUNKED + b"2\r\nab\r\n", b"zz\r\n")
        assert answers.count(b"HTTP/1.1 200") == before
        if not before:
            assert answers.startswith(b"HTTP/1.1 400 ")
            await until(lambda: echo.gone)
    assert len(echo.asked) == before
    assert not caplog.records


# sizes


@pytest.mark.parametrize(
    ("start", "unit"),
    [
        (GET + b"x: ", b"a" * 1000),
        (GET, b"aa: b\r\n" * 100),
        (CHUNKED + b"0\r\n", b"aa: b\r\n" * 100),
        (CHUNKED + b"0\r\nx: ", b"a" * 1000),
        (CHUNKED + b"1;a=", b"a" * 1000),
        (POST + H2C + b"x: ", b"a" * 1000),
    ],
)
async def test_nothing_but_a_body_can_be_endless(start: bytes, unit: bytes) -> None:
    async with served(Echo(), Edge) as port:
        sent, answer = await flood(port, start, unit)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert sent < 16 << 20


async def test_a_target_that_does_not_end_is_too_long() -> None:
    async with served(Echo(), Edge) as port:
        sent, answer = await flood(port, b"GET /", b"a" * 1000)
        assert answer.startswith(b"HTTP/1.1 414 ")
        assert sent < 16 << 20


@pytest.mark.parametrize("size", [1000, 60_000, 70_000, 200_000])
@pytest.mark.parametrize("step", [1000, 1 << 20])
@pytest.mark.parametrize("connection", [b"connection: close", b"connection: close, upgrade\r\nupgrade: a"])
async def test_a_head_over_the_limit_is_refused_however_it_comes(
    size: int, step: int, connection: bytes
) -> None:
    echo = Echo()
    async with served(echo, Edge) as port:
        wire = GET + connection + b"\r\nx: " + b"a" * size + b"\r\n\r\n"
        pieces = [wire[start : start + step] for start in range(0, len(wire), step)]
        status = b"HTTP/1.1 200 " if size < 64 << 10 else b"HTTP/1.1 431 "
        assert (await all_of(port, *pieces)).startswith(status)


async def test_the_number_of_headers_is_bounded() -> None:
    async with served(Echo(), Edge) as port:
        for count, status in ((200, b"HTTP/1.1 200 "), (300, b"HTTP/1.1 431 ")):
            wire = GET + b"connection: close\r\n" + b"a: b\r\n" * count + b"\r\n"
            assert (await all_of(port, wire)).startswith(status)


async def test_large_bodies_in_one_read_with_the_next_head_are_no_large_head() -> None:
    echo = Echo()
    async with served(echo, Edge) as port, client(port) as (reader, writer):
        body = b"x" * 200_000
        whole = POST + b"content-length: %d\r\n\r\n" % len(body) + body
        for _ in range(3):
            writer.write(whole + POST)
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            await reader.readexactly(len(body))
            writer.write(b"content-length: 2\r\n\r\n{}")
            assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
        assert len(echo.asked) == 6


async def test_the_line_of_pipelined_requests_is_bounded() -> None:
    echo = Echo()
    echo.going.clear()
    async with served(echo, Small) as port, client(port) as (reader, writer):
        writer.write((GET + b"\r\n") * 50)
        await until(lambda: echo.asked)
        echo.going.set()
        assert (await reader.read()).count(b"HTTP/1.1 200") == 5


async def test_trailers_are_no_headers() -> None:
    echo = Echo()
    async with served(echo, Edge) as port, client(port) as (reader, writer):
        writer.write(CHUNKED + b"2\r\n{}\r\n0\r\nauthorization: evil\r\nx-request-id: evil\r\n\r\n")
        assert (await reader.readuntil(b"{}")).startswith(b"HTTP/1.1 200")
    assert set(echo.asked[0][2]) == {b"host", b"transfer-encoding"}


# time


@pytest.mark.parametrize(
    "pieces",
    [
        [b""],
        [b"\r\n"],
        [b"GET /hea"],
        [POST + b"content-length: 5\r\n\r\n"],
        [POST + b"content-length: 5\r\n\r\n", b"ab"],
        [POST + b"content-length: 1\r\n\r\na" + b"GET /"],
    ],
)
async def test_a_client_that_does_not_go_on_is_not_waited_for(pieces: list[bytes]) -> None:
    async with served(Echo(), Quick) as port:
        answers = await all_of(port, *pieces)
    if pieces[-1].strip():
        assert b"HTTP/1.1 408 " in answers
    else:
        assert answers == b""


async def test_a_request_that_is_served_has_all_the_time_it_needs() -> None:
    echo = Echo()
    echo.going.clear()
    loop = asyncio.get_running_loop()
    async with served(echo, Quick) as port, client(port) as (reader, writer):
        writer.write(GET + b"\r\n")
        writer.write(GET + b"x:")  # and half of the next, which has to wait for its turn
        await until(lambda: echo.asked)
        began = loop.time()
        await until(lambda: loop.time() > began + 0.3)
        echo.going.set()
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


async def test_a_slow_body_that_goes_on_is_read_to_its_end() -> None:
    async with served(Echo(), Quick) as port, client(port) as (reader, writer):
        writer.write(POST + b"content-length: 20000\r\n\r\n")
        for _ in range(20):
            writer.write(b"x" * 1000)
            await asyncio.sleep(0.01)
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")


# leaving


async def hang(peer: Peer) -> None:
    await peer.until_gone()


async def test_a_client_that_closes_its_half_has_gone() -> None:
    async with Worker.up(hang) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy, Edge) as port, client(port) as (reader, writer):
            writer.write(GET + b"\r\n")
            await until(lambda: worker.requests)
            writer.write_eof()
            assert await reader.read() == b""
            await until(lambda: proxy.gone and not worker.open)


async def test_a_client_that_leaves_takes_all_its_pipelined_requests_with_it_in_silence(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Worker.up(hang) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy, Edge) as port:
            for reset in (False, True):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write((GET + b"\r\n") * 20)
                await until(lambda: worker.open)
                if reset:
                    writer.transport.abort()
                writer.close()
                await until(lambda: not worker.open)
        assert proxy.gone == len(worker.requests) == 2
    assert not caplog.records


class Cutting:
    def handler(self, _method: bytes, _path: str) -> Handler:
        return self._serve

    async def _serve(self, cycle: Cycle) -> None:
        cycle.begin(200, [(b"content-length", b"9")], b"some", more=True)
        cycle.cut()


async def test_an_answer_can_be_broken_off_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    async with served(Cutting(), Edge) as port:
        assert (await all_of(port, GET + b"\r\n")).endswith(b"\r\n\r\nsome")
    assert not caplog.records


async def test_a_client_that_leaves_with_requests_in_line_takes_the_first_with_it() -> None:
    async with Worker.up(hang) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy, Edge) as port:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(GET + b"\r\n")
            await until(lambda: worker.requests)
            writer.write(GET + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)
            writer.close()
            await until(lambda: proxy.gone and not worker.open)


async def test_a_line_of_large_requests_is_not_read_ahead(caplog: pytest.LogCaptureFixture) -> None:
    echo = Echo()
    echo.going.clear()
    body = b"x" * 1000
    whole = POST + b"content-length: 1000\r\n\r\n" + body
    async with served(echo, Edge) as port, client(port) as (reader, writer):
        writer.write(whole * 500)
        await until(lambda: echo.asked)
        echo.going.set()
        for _ in range(500):
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
            assert await reader.readexactly(1000) == body
    # A router of another test may still probe a worker that had this port before.
    assert [method for method, *_ in echo.asked].count("POST") == 500
    assert not caplog.records


class Counting:
    """Reads a body and says how often it was woken for that."""

    def __init__(self) -> None:
        self.pieces = 0
        self.size = 0

    def handler(self, _method: bytes, _path: str) -> Handler:
        return self._serve

    async def _serve(self, cycle: Cycle) -> None:
        with contextlib.suppress(ClientGone):
            while True:
                message = await cycle.receive()
                self.pieces += 1
                self.size += len(message.get("body", b""))
                if not message.get("more_body"):
                    break
            cycle.begin(200, [(b"content-length", b"0")], b"", more=False)


async def test_a_read_full_of_small_chunks_wakes_its_request_once() -> None:
    counting = Counting()
    async with served(counting, Edge) as port, client(port) as (reader, writer):
        writer.write(CHUNKED)
        await writer.drain()
        writer.write(b"5\r\nhello\r\n" * 3000 + b"0\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert counting.size == 15_000
    assert counting.pieces < 20


async def test_a_body_of_nearly_nothing_but_framing_is_refused() -> None:
    async with served(Counting(), Edge) as port:
        sent, answer = await flood(port, CHUNKED, b"2\r\nxy\r\n" * 1000)
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert sent < 16 << 20
