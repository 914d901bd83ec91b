"""The HTTP server of one process, and how it is told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from functools import partial
from typing import TYPE_CHECKING

import uvicorn

from router.proxy.edge import EdgeProtocol

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket
    from types import FrameType

    from router.share.doors import Listener
    from router.share.team import Team

_log = logging.getLogger(__name__)


class Server(uvicorn.Server):
    """uvicorn's server, which calls `stopping` before it waits for the requests under way.

    Told to stop it calls `leaving` at once, and goes on for `leave_seconds` before it stops.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        stopping: Callable[[], None],
        *,
        leaving: Callable[[], None],
        leave_seconds: float,
        team: Team | None = None,
    ) -> None:
        super().__init__(config)
        self._team = team
        self._stopping = stopping
        self._leaving = leaving
        self._leave_seconds = leave_seconds
        self._loop = asyncio.get_running_loop()
        self._told = False

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Take a signal to stop; a second one ends the time that the first has left."""
        first, self._told = not self._told, True
        self._leaving()
        if first and self.started and self._leave_seconds:
            _log.info("stopping in %g s; /ready says so already", self._leave_seconds)
            leave = partial(super().handle_exit, sig, frame)
            self._loop.call_soon_threadsafe(self._loop.call_later, self._leave_seconds, leave)
        else:
            super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Start; end what has been started at once if it was to stop meanwhile, which uvicorn would leave."""
        await super().startup(sockets)
        if self.should_exit and self.started:
            await self.shutdown(sockets)
        elif self._team is not None:
            await self._team.serves(self._listen)

    async def _listen(self, made: socket) -> Listener:
        """Take connections from one more socket, as from the first."""
        config = self.config

        def protocol() -> asyncio.Protocol:
            return EdgeProtocol(config, self.server_state, self.lifespan.state)

        return await self._loop.create_server(protocol, sock=made, ssl=config.ssl, backlog=config.backlog)

    async def shutdown(self, sockets: list[socket] | None = None) -> None:
        """Stop taking requests, let those under way end, and close."""
        _log.info("stopping; %d connections are open", len(self.server_state.connections))
        self._stopping()
        if self._team is not None:
            self._team.stopping()
        for server in self.servers:
            server.close()
            await server.wait_closed()  # who is being let in has to be there to be told
        await super().shutdown(sockets)


class Stop:
    """Takes the signals to stop that come while uvicorn does not: before it serves, and once it has."""

    def __init__(self) -> None:
        self.asked = False
        self.server: Server | None = None
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        self.asked = True
        if self.server is not None:
            self.server.should_exit = True

    def as_if_told(self) -> None:
        """Stop as after a signal: whoever would have sent it is gone."""
        self.asked = True
        if self.server is not None:
            self.server.handle_exit(signal.SIGTERM, None)
