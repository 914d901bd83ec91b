"""Clients that do not read what they have asked for, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
from typing import TYPE_CHECKING

from router.proxy.edge import EdgeProtocol
from router.proxy.limits import ClientLimits
from router.proxy.upstream import Upstream
from tests.proxy.scripted import Worker, answer
from tests.proxy.serving import Proxy, served
from tests.waiting import DEADLINE_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.proxy.cycle import Cycle, Handler
    from tests.proxy.scripted import Peer

LARGE = 32 << 20
REQUEST = b"POST / HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class Strict(EdgeProtocol):
    limits = ClientLimits(stall_seconds=0.2)


class Patient(EdgeProtocol):
    limits = ClientLimits(stall_seconds=1)


class Endless(EdgeProtocol):
    limits = ClientLimits(stall_seconds=0)


class Brief:
    """Ends its answer as soon as the client's side of the system takes no more of it."""

    def __init__(self) -> None:
        self.left = 0

    def handler(self, _method: bytes, _path: str) -> Handler:
        return self._serve

    async def _serve(self, cycle: Cycle) -> None:
        cycle.begin(200, [], b"begun", more=True)
        while not cycle.transport.get_write_buffer_size():
            cycle.write(bytes(16 << 10))
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        cycle.end()
        assert not cycle.flow.write_paused
        self.left = cycle.transport.get_write_buffer_size()


async def endless(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    while True:
        await peer.send(b"1000\r\n" + bytes(4096) + b"\r\n")


async def large(peer: Peer) -> None:
    await peer.send(answer(bytes(LARGE)))


@contextlib.asynccontextmanager
async def asked(port: int) -> AsyncIterator[socket.socket]:
    """Ask, and read nothing by oneself."""
    with socket.socket() as end:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        end.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(end, ("127.0.0.1", port))
        await loop.sock_sendall(end, REQUEST)
        async with asyncio.timeout(DEADLINE_SECONDS):
            yield end


async def rest_of(end: socket.socket, slowly_for: float = 0.0) -> int:
    """Read to the end, a little at a time for so many seconds, and return how many bytes have come."""
    loop, got = asyncio.get_running_loop(), 0
    until_then = loop.time() + slowly_for
    while piece := await loop.sock_recv(end, 1 << 20):
        got += len(piece)
        if loop.time() < until_then:
            await asyncio.sleep(0.01)
    return got


async def test_who_takes_nothing_of_an_answer_loses_it_and_the_worker_is_told() -> None:
    async with Worker.up(endless) as worker:
        proxy = Proxy(upstream := Upstream(worker.url))
        async with served(proxy, Strict) as port, asked(port):
            await until(lambda: proxy.gone)
            await until(lambda: not upstream.busy)
        await upstream.close()


async def test_who_takes_a_little_at_a_time_gets_all_of_it() -> None:
    async with Worker.up(large) as worker:
        proxy = Proxy(upstream := Upstream(worker.url))
        async with served(proxy, Patient) as port, asked(port) as end:
            assert await rest_of(end, slowly_for=2.5) > LARGE
        assert not proxy.gone
        await upstream.close()


async def test_the_end_of_an_answer_is_not_kept_for_ever_either() -> None:
    brief = Brief()
    async with served(brief, Strict) as port, asked(port) as end:
        await until(lambda: brief.left)
        lost = select.poll()
        lost.register(end, 0)
        await until(lambda: lost.poll(0))


async def test_without_a_limit_nobody_is_cut() -> None:
    async with Worker.up(large) as worker:
        proxy = Proxy(upstream := Upstream(worker.url))
        async with served(proxy, Endless) as port, asked(port) as end:
            await until(lambda: upstream.busy)
            await asyncio.sleep(0.5)
            assert await rest_of(end) > LARGE
        await upstream.close()
