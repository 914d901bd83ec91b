"""uvicorn around one application, embedded: no signals, no logs, started and stopped by its owner.

It can be told to behave as a machine that fails: to cut connections, to refuse them, to take them and
never read.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, cast

import uvicorn

from workers.ports import listen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp

_GRACE_SECONDS = 1


class Server:
    """Serves an application on a listening socket."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self._address = listening.getsockname()[:2]
        self._socket = listening
        config = uvicorn.Config(
            app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        config.load()
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)

    async def start(self) -> None:
        """Accept connections from now on."""
        await self._server.startup(sockets=[self._socket])

    async def close(self) -> None:
        """Refuse new connections, give running answers a second, close."""
        await self._server.shutdown(sockets=[self._socket])

    def _transports(self) -> Iterator[asyncio.Transport]:
        for protocol in list(self._server.server_state.connections):
            if (transport := getattr(protocol, "transport", None)) is not None:
                yield transport

    def cut(self, client: tuple[str, int] | None = None) -> None:
        """Reset the connection of one client, or all of them."""
        for transport in self._transports():
            if client is None or transport.get_extra_info("peername")[:2] == tuple(client):
                transport.abort()

    async def refuse(self, seconds: float) -> None:
        """Close the port and all connections for a while."""
        self._stop_listening()
        self.cut()
        await asyncio.sleep(seconds)
        await self._listen_again()

    async def half_open(self, seconds: float) -> None:
        """Read nothing for a while, from old connections and new ones, and close none of them."""
        self._stop_listening()
        held = list(self._transports())
        for transport in held:
            transport.pause_reading()
        deaf = await asyncio.get_running_loop().create_server(_Deaf, sock=listen(*self._address))
        try:
            await asyncio.sleep(seconds)
        finally:
            deaf.close()
        for transport in held:
            if not transport.is_closing():
                transport.resume_reading()
        await self._listen_again()

    def _stop_listening(self) -> None:
        for server in self._server.servers:
            server.close()

    async def _listen_again(self) -> None:
        self._socket = listen(*self._address)
        await self.start()


class _Deaf(asyncio.Protocol):
    """A connection that nobody reads."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stop before the first byte."""
        cast("asyncio.Transport", transport).pause_reading()


def url_of(listening: socket.socket) -> str:
    """Return the URL at which a listening socket can be reached from this machine."""
    host, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return (
        f"http://[{reachable}]:{port}"
        if listening.family == socket.AF_INET6
        else f"http://{reachable}:{port}"
    )
