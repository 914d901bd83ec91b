"""uvicorn around one application, embedded: no signals, no logs, started and stopped by its owner."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import uvicorn

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_GRACE_SECONDS = 1


class Server:
    """Serves an application on a listening socket."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
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


def url_of(listening: socket.socket) -> str:
    """Return the URL at which a listening socket can be reached from this machine."""
    host, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return (
        f"http://[{reachable}]:{port}"
        if listening.family == socket.AF_INET6
        else f"http://{reachable}:{port}"
    )
