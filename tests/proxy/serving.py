"""A real uvicorn in this event loop, and the least proxy that can be made of the room's parts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.server import ServerState

from router.errors import UpstreamFailed
from router.proxy.body import BodyBudget, body_of
from router.proxy.disconnect import ClientGone, ClientWatch
from router.proxy.edge import EdgeProtocol
from router.proxy.relay import Relayed, relay
from tests.waiting import until

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator

    from router.proxy.cycle import Cycle, Handler
    from router.proxy.upstream import Upstream


class Proxy:
    """Passes every request to one upstream and keeps what became of it."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.relayed: list[Relayed] = []
        self.failed: list[UpstreamFailed] = []
        self.starts = 0
        self.gone = 0

    def handler(self, _method: bytes, _path: str) -> Handler:
        return self._serve

    async def _serve(self, cycle: Cycle) -> None:
        try:
            body = await body_of(cycle, 1 << 20, BodyBudget())
            with ClientWatch(cycle):
                await self._pass_on(cycle, body)
        except ClientGone:
            self.gone += 1

    async def _pass_on(self, cycle: Cycle, body: bytes) -> None:
        fields, _ = cycle.sender.onward(cycle.headers)
        try:
            response = await self._upstream.request(cycle.method, cycle.target, fields, body)
            relayed = await relay(response, cycle, extra=[(b"x-extra", b"1")], on_start=self._count)
        except UpstreamFailed as failure:
            self.failed.append(failure)
            body = failure.body()
            cycle.begin(failure.status, [(b"content-length", b"%d" % len(body))], body, more=False)
        else:
            self.relayed.append(relayed)

    def _count(self) -> None:
        self.starts += 1


@contextlib.asynccontextmanager
async def served(
    app: Any, protocol: type[EdgeProtocol] = EdgeProtocol, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve an app on a real socket, and give the port."""
    config = uvicorn.Config(
        app,
        http=protocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        interface="asgi3",
        proxy_headers=False,
    )
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await until(lambda: not state.connections and not state.tasks, "every request ended")
