"""Peers that are gone without a word are found: the kernel is told to ask, on both sides."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from router.listening import listen
from router.proxy.keepalive import IDLE_SECONDS, INTERVAL_SECONDS, QUESTIONS
from router.proxy.upstream import Upstream
from tests.engines.scripted import Answer, scripted

if TYPE_CHECKING:
    from router.proxy.connection import Connection

TIMES = {"TCP_KEEPIDLE": IDLE_SECONDS, "TCP_KEEPINTVL": INTERVAL_SECONDS, "TCP_KEEPCNT": QUESTIONS}


def is_kept_alive(connection: socket.socket) -> bool:
    known = {name: value for name, value in TIMES.items() if hasattr(socket, name)}
    options = [connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in known]
    return bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)) and options == [
        *known.values()
    ]


async def test_connections_to_workers_are_kept_alive() -> None:
    async with scripted({"/": Answer(b"x")}) as (_, upstream):
        response = await upstream.request(b"GET", b"/", [])
        connection: Connection = response._connection
        assert is_kept_alive(connection._transport.get_extra_info("socket"))
        limit = getattr(socket, "TCP_USER_TIMEOUT", None)
        if limit is not None:
            half_minute = connection._transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, limit)
            assert half_minute == 1000 * (IDLE_SECONDS + INTERVAL_SECONDS * QUESTIONS)
        assert await response.read_all(10) == b"x"


async def test_connections_of_clients_are_kept_alive() -> None:
    with listen("127.0.0.1", 0) as listening:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        accepted, _ = listening.accept()
        with accepted:
            assert is_kept_alive(accepted)
        assert await reader.read() == b""
        writer.close()


async def test_an_upstream_connects_to_the_address_that_it_is_given_and_names_its_host() -> None:
    async with scripted({"/": Answer(b"x")}) as (worker, _):
        upstream = Upstream(f"http://worker.invalid:{worker.port}", address="127.0.0.1")
        response = await upstream.request(b"GET", b"/", [])
        assert upstream.busy == 0
        assert await response.read_all(10) == b"x"
        await upstream.close()
