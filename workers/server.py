"""uvicorn's protocol around one application: no signals, no logs, started and stopped by its owner.

It can be told to behave as a machine that fails: to cut connections, to refuse them, to take them and
never read. Times of refusing and of not reading may overlap: a port is closed while anything refuses, else
deaf while anything is half open, and it listens again when the last of them has ended.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

import uvicorn
from uvicorn.server import ServerState

from workers.ports import bind_again, listen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from starlette.types import ASGIApp, Receive, Scope, Send

Mode: TypeAlias = Literal["new", "open", "deaf", "closed"]
_GRACE_SECONDS = 1.0
_NOTICE_SECONDS = 0.1
_POLL_SECONDS = 0.002
_BACKLOG = 2048


class Server:
    """Serves an application on a listening socket, on the same port again after every outage."""

    def __init__(self, app: ASGIApp, listening: socket.socket) -> None:
        self.mode: Mode = "new"
        self._goal: Mode = "new"
        self._address = listening.getsockname()[:2]
        self._socket: socket.socket | None = listening
        self._listener: asyncio.Server | None = None
        self._app = _Ending(app)
        self._config = uvicorn.Config(
            self._app,
            http="httptools",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
        )
        self._config.load()
        self._state = ServerState()
        self._outages: Counter[str] = Counter()
        self._changing = asyncio.Lock()
        self._held: list[asyncio.Transport] = []  # connections that are not read for a while
        self._deaf: set[asyncio.Transport] = set()  # and those that never will be

    async def start(self) -> None:
        """Accept connections from now on, unless an outage is under way."""
        self._goal = "open"
        await self._follow()

    async def close(self) -> None:
        """Refuse new connections, give running answers a second, then cut and cancel what is left."""
        self._goal = "closed"
        await self._follow()
        for connection in list(self._state.connections):
            connection.shutdown()
        await self._drain(_GRACE_SECONDS)
        self.cut()
        self._app.ending = True
        await self._drain(_NOTICE_SECONDS)
        for task in list(self._state.tasks):
            task.cancel()
        await self._drain(_GRACE_SECONDS)

    async def _drain(self, seconds: float) -> None:
        """Wait up to so long until nothing is answered and all connections are closed."""
        deadline = monotonic() + seconds
        while (self._state.tasks or self._state.connections) and monotonic() < deadline:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(_POLL_SECONDS)

    def _transports(self) -> Iterator[asyncio.Transport]:
        for protocol in list(self._state.connections):
            if (transport := getattr(protocol, "transport", None)) is not None:
                yield transport

    def cut(self, client: tuple[str, int] | None = None) -> None:
        """Reset the connection of one client, or all of them."""
        for transport in [*self._transports(), *self._deaf]:
            if client is None or transport.get_extra_info("peername")[:2] == tuple(client):
                transport.abort()

    async def refuse(self, seconds: float) -> None:
        """Close the port and all connections for a while."""
        await self._suffer("refuse", seconds)

    async def half_open(self, seconds: float) -> None:
        """Read nothing for a while, from old connections and new ones, and close none of them."""
        await self._suffer("half_open", seconds)

    async def _suffer(self, outage: str, seconds: float) -> None:
        self._outages[outage] += 1
        try:
            await self._follow()
            await asyncio.sleep(seconds)
        finally:
            self._outages[outage] -= 1
            await self._follow()

    @property
    def _due(self) -> Mode:
        """What the port should be now."""
        if self._goal == "open" and self._outages["refuse"]:
            return "closed"
        if self._goal == "open" and self._outages["half_open"]:
            return "deaf"
        return self._goal

    async def _follow(self) -> None:
        """Make the port what it should be; one change at a time."""
        async with self._changing:
            due = self._due
            if due == self.mode:
                return
            self._stop_listening()
            self.mode = "closed"
            if due == "closed":
                self._hang_up()
            else:
                await self._listen(due)
            self.mode = due

    def _hang_up(self) -> None:
        """Cut everything if the port refuses; at the end of all, running answers get their second."""
        if self._goal == "open":
            self.cut()

    async def _listen(self, mode: Mode) -> None:
        listening, self._socket = self._socket, None
        if listening is None:
            listening = await bind_again(partial(listen, *self._address))
        protocol = self._serving if mode == "open" else partial(_Deaf, self._deaf)
        loop = asyncio.get_running_loop()
        self._listener = await loop.create_server(protocol, sock=listening, backlog=_BACKLOG)
        if mode == "open":
            self._read_on()
        else:
            self._read_nothing()

    def _serving(self) -> asyncio.Protocol:
        protocol: Callable[..., asyncio.Protocol] = self._config.http_protocol_class
        return protocol(config=self._config, server_state=self._state, app_state={})

    def _stop_listening(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        elif self._socket is not None:
            self._socket.close()
            self._socket = None

    def _read_nothing(self) -> None:
        self._held = list(self._transports())
        for transport in self._held:
            transport.pause_reading()

    def _read_on(self) -> None:
        for transport in self._held:
            if not transport.is_closing():
                transport.resume_reading()
        self._held.clear()


class _Ending:
    """The application; `ending`: what is cancelled now has no answer to give and nobody to tell."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.ending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        except asyncio.CancelledError:
            if not self.ending:
                raise


class _Deaf(asyncio.Protocol):
    """A connection that nobody reads; `among` the others while it lasts."""

    def __init__(self, among: set[asyncio.Transport]) -> None:
        self._among = among

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stop before the first byte."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.pause_reading()
        self._among.add(self._transport)

    def connection_lost(self, _problem: Exception | None) -> None:
        """Forget it."""
        self._among.discard(self._transport)


def url_of(listening: socket.socket) -> str:
    """Return the URL at which a listening socket can be reached from this machine."""
    host, port = listening.getsockname()[:2]
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return (
        f"http://[{reachable}]:{port}"
        if listening.family == socket.AF_INET6
        else f"http://{reachable}:{port}"
    )
