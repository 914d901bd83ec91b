"""Connections are taken as they come, by a loop that has other things to do, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from router.proxy.accepting import Loop
from router.proxy.tls import TlsFiles, server_context
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator

FILES = Path(__file__).parents[1] / "fixtures" / "tls"
PEM, KEY = str(FILES / "localhost.pem"), str(FILES / "localhost.key")


class Met(asyncio.Protocol):
    """Keeps the transports of those who came, and the turn of the loop in which each did."""

    def __init__(self, come: list[tuple[asyncio.BaseTransport, int]], turn: Callable[[], int]) -> None:
        self._come, self._turn = come, turn

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._come.append((transport, self._turn()))


class Served:
    """A server on a free port of a loop whose turns are counted."""

    def __init__(self) -> None:
        self.come: list[tuple[asyncio.BaseTransport, int]] = []
        self.turns = 0
        self.socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.address = self.socket.getsockname()

    async def start(self, tls: ssl.SSLContext | None = None) -> asyncio.Server:
        loop = asyncio.get_running_loop()
        self._count()
        return await loop.create_server(self._met, sock=self.socket, ssl=tls, backlog=512)

    def _met(self) -> Met:
        return Met(self.come, lambda: self.turns)

    def _count(self) -> None:
        self.turns += 1
        asyncio.get_running_loop().call_soon(self._count)


def run(work: Coroutine[None, None, None]) -> None:
    with asyncio.Runner(loop_factory=Loop) as runner:
        runner.run(work)


@contextlib.contextmanager
def clients(address: tuple[str, int], number: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection(address)) for _ in range(number)]


def test_all_who_wait_are_let_in_within_a_few_turns_of_the_loop() -> None:
    async def work() -> None:
        served = Served()
        with clients(served.address, 200):
            server = await served.start()
            await until(lambda: len(served.come) == 200, "everybody let in")
            assert served.come[-1][1] - served.come[0][1] <= 10
            server.close()
            await server.wait_closed()

    run(work())


def test_answers_are_sent_at_once() -> None:
    async def work() -> None:
        served = Served()
        with clients(served.address, 1):
            server = await served.start()
            await until(lambda: bool(served.come))
            connection = served.come[0][0].get_extra_info("socket")
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            server.close()

    run(work())


def test_a_closed_one_takes_nobody_and_its_port_is_free() -> None:
    async def work() -> None:
        served = Served()
        server = await served.start()
        server.close()
        server.close()
        await server.wait_closed()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(served.address)

    run(work())


def test_whoever_comes_while_no_file_can_be_opened_is_let_in_once_one_can() -> None:
    async def work() -> None:
        served = Served()
        server = await served.start()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        with clients(served.address, 3):
            try:
                resource.setrlimit(resource.RLIMIT_NOFILE, (_next_file(), hard))
                before = served.turns
                await until(lambda: served.turns > before + 100, "turns of the loop that go on")
                assert not served.come
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            await until(lambda: len(served.come) == 3, "everybody let in")
            server.close()

    run(work())


def test_who_has_been_taken_is_let_in_also_after_the_end_and_hears_of_its_own() -> None:
    servers: list[asyncio.Server] = []
    made: list[asyncio.BaseTransport] = []
    lost: list[object] = []

    class Heard(asyncio.Protocol):
        def __init__(self) -> None:
            servers[0].close()  # with all of them on their way in

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            made.append(transport)

        def connection_lost(self, exc: Exception | None) -> None:
            lost.append(exc)

    async def work() -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=512)
        with clients(listening.getsockname(), 20):
            loop = asyncio.get_running_loop()
            servers.append(await loop.create_server(Heard, sock=listening, backlog=512))
            await until(lambda: bool(made))
            await servers[0].wait_closed()
            assert len(made) == 20
        await until(lambda: len(lost) == 20, "everybody told of the end")

    run(work())


def test_a_handshake_that_fails_or_is_under_way_at_the_end_concerns_nobody_else(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        served = Served()
        server = await served.start(server_context(TlsFiles(PEM, KEY)))
        with clients(served.address, 2) as (broken, silent):
            broken.sendall(b"GET / HTTP/1.1\r\n\r\n" * 20)
            _, writer = await asyncio.open_connection(
                *served.address, ssl=ssl.create_default_context(cafile=PEM), server_hostname="localhost"
            )
            await until(lambda: len(served.come) == 1, "the sound one let in")
            writer.close()
            server.close()
            await server.wait_closed()
            silent.settimeout(5)
            with contextlib.suppress(ConnectionResetError):
                assert silent.recv(1) == b""

    run(work())
    assert not caplog.records


def _next_file() -> int:
    """Return the number that the next file would have: a limit that lets nobody open one more."""
    number = os.dup(0)
    os.close(number)
    return number
