"""Answers that come before the request's body has: what becomes of the rest of it, and of the connection."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import pytest

from router.errors import BodyTooLarge
from router.proxy.body import BodyBudget, body_of
from router.proxy.edge import EdgeProtocol
from router.proxy.limits import ClientLimits
from tests.proxy.serving import served
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.proxy.cycle import Cycle, Handler

LIMIT = 1000
HEAD = b"POST / HTTP/1.1\r\nhost: a\r\n"
LARGE = b"content-length: 200000\r\n"


class Edge(EdgeProtocol):
    limits = ClientLimits(linger_seconds=0.5)


class Quick(EdgeProtocol):
    limits = ClientLimits(body_seconds=0.05, linger_seconds=0.2)


class Bounded:
    """Answers with the body's length, or that it is too large."""

    def handler(self, _method: bytes, _path: str) -> Handler:
        return self._serve

    async def _serve(self, cycle: Cycle) -> None:
        try:
            body = await body_of(cycle, LIMIT, BodyBudget())
            status, text = 200, b"%d" % len(body)
        except BodyTooLarge as error:
            status, text = error.status, error.body()
        cycle.begin(status, [(b"content-length", b"%d" % len(text))], text, more=False)


@contextlib.asynccontextmanager
async def client(
    protocol: type[EdgeProtocol],
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with served(Bounded(), protocol) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield reader, writer
        writer.close()


async def test_a_length_that_is_too_large_is_refused_before_the_body_comes() -> None:
    async with client(Edge) as (reader, writer):
        writer.write(HEAD + b"content-length: 9223372036854775808\r\n\r\n")
        assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 413 ")


async def test_a_connection_can_be_used_again_once_the_body_has_come_all_the_same() -> None:
    async with client(Edge) as (reader, writer):
        writer.write(HEAD + LARGE + b"\r\n")
        answer = await reader.readuntil(b"}}")
        assert b"connection: close" not in answer
        writer.write(b"x" * 200_000 + HEAD + b"content-length: 2\r\n\r\n{}")
        assert (await reader.readuntil(b"\r\n\r\n2")).startswith(b"HTTP/1.1 200 ")


async def test_who_asks_first_whether_to_send_the_body_is_told_no_and_the_connection_closes() -> None:
    async with client(Edge) as (reader, writer):
        writer.write(HEAD + LARGE + b"expect: 100-continue\r\n\r\n")
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b"\r\nconnection: close\r\n" in answer
        assert b" 100 " not in answer


async def test_who_asks_first_and_may_sends_the_body() -> None:
    async with client(Edge) as (reader, writer):
        writer.write(HEAD + b"content-length: 2\r\nexpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        answer = await reader.readuntil(b"\r\n\r\n2")
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert b"connection: close" not in answer


async def test_a_client_that_is_still_sending_reads_the_answer_before_the_connection_closes() -> None:
    async with client(Edge) as (reader, writer):
        writer.write(HEAD + LARGE + b"connection: close\r\n\r\n")
        answer = await reader.readuntil(b"}}")
        assert answer.startswith(b"HTTP/1.1 413 ")
        writer.write(b"x" * 200_000)
        await writer.drain()
        assert await reader.read() == b""


@pytest.mark.parametrize("sends", [False, True])
async def test_nobody_is_read_from_for_ever_after_the_answer(*, sends: bool) -> None:
    async with client(Quick) as (reader, writer):
        writer.write(HEAD + b"content-length: 1000000000000\r\n\r\n")
        assert (await reader.readuntil(b"}}")).startswith(b"HTTP/1.1 413 ")
        with contextlib.suppress(ConnectionError):
            while sends and not reader.at_eof():
                writer.write(b"x" * 10_000)
                await writer.drain()
                await asyncio.sleep(0)
            assert await reader.read() == b""
