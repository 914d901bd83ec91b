"""A real uvicorn in this event loop, and the least proxy that can be made of the room's parts."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from router.errors import UpstreamFailed
from router.proxy.body import read_body
from router.proxy.disconnect import ClientGone, ClientWatch
from router.proxy.edge import EdgeProtocol
from router.proxy.headers import request_headers
from router.proxy.relay import Relayed, relay
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.proxy.asgi import Receive, Scope, Send
    from router.proxy.upstream import Upstream

PROTOCOLS = [EdgeProtocol, HttpToolsProtocol]


class Proxy:
    """Passes every request to one upstream and keeps what became of it."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.relayed: list[Relayed] = []
        self.failed: list[UpstreamFailed] = []
        self.starts = 0
        self.gone = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body = await read_body(receive, 1 << 20)
            with ClientWatch(scope, receive) as watch:
                await self._pass_on(scope, body, send, watch)
        except ClientGone:
            self.gone += 1

    async def _pass_on(self, scope: Scope, body: bytes, send: Send, watch: ClientWatch) -> None:
        fields = request_headers(scope["headers"])
        try:
            method = scope["method"].encode()
            response = await self._upstream.request(method, scope["raw_path"], fields, body)
            relayed = await relay(
                response, send, extra=[(b"x-extra", b"1")], on_start=self._count, edge=watch.edge
            )
        except UpstreamFailed as failure:
            self.failed.append(failure)
            await send({"type": "http.response.start", "status": failure.status, "headers": []})
            await send({"type": "http.response.body", "body": failure.body()})
        else:
            self.relayed.append(relayed)

    def _count(self) -> None:
        self.starts += 1


@contextlib.asynccontextmanager
async def served(app: Any, protocol: type[HttpToolsProtocol]) -> AsyncIterator[int]:
    """Serve an ASGI app with uvicorn's own protocol or ours, on a real socket, and give the port."""
    config = uvicorn.Config(app, http=protocol, lifespan="off", log_config=None, access_log=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: protocol(config, state, {}), "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for connection in list(state.connections):
            connection.transport.abort()
        await until(lambda: not state.connections and not state.tasks, "every request ended")
