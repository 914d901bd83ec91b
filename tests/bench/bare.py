"""The barest proxy that uvicorn can run as raw ASGI, without any routing: each request to the next worker.

`python -m tests.bench.bare PORT WORKER ...`. The floor for what a router in Python can cost, or nearly so:
ours does not go through ASGI.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from typing import TYPE_CHECKING, cast
from urllib.parse import urlsplit

import httptools
import uvicorn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.proxy.asgi import Receive, Scope, Send

_DROPPED = {b"connection", b"keep-alive", b"transfer-encoding", b"host", b"content-length"}


class Connection(asyncio.Protocol):
    """One connection to a worker, for one request after another."""

    def __init__(self) -> None:
        self.lost = False
        self._waiter: asyncio.Future[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write

    def connection_lost(self, _error: Exception | None) -> None:
        self.lost = True
        self._wake()

    async def ask(self, request: bytes) -> None:
        """Send a request; return once the head of the answer is here."""
        self.parser = httptools.HttpResponseParser(self)
        self.headers: list[tuple[bytes, bytes]] = []
        self.pieces: list[bytes] = []
        self.complete = self._begun = False
        self._write(request)
        while not self._begun:
            await self.more()

    async def more(self) -> None:
        """Wait for more of the answer."""
        if self.lost:
            raise ConnectionError
        self._waiter = asyncio.get_running_loop().create_future()
        await self._waiter

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)
        self._wake()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self._begun = True

    def on_body(self, piece: bytes) -> None:
        self.pieces.append(piece)

    def on_message_complete(self) -> None:
        self.complete = True

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Bare:
    """An ASGI application."""

    def __init__(self, workers: list[str]) -> None:
        pools: list[tuple[str, int, list[Connection]]] = []
        for worker in workers:
            parts = urlsplit(worker)
            assert parts.hostname is not None
            assert parts.port is not None
            pools.append((parts.hostname, parts.port, []))
        self._pools: Iterator[tuple[str, int, list[Connection]]] = itertools.cycle(pools)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        message = await receive()
        body: bytes = message["body"]
        while message["more_body"]:
            message = await receive()
            body += message["body"]
        host, port, pool = next(self._pools)
        connection = await self._connection(host, port, pool)
        await connection.ask(_request(scope, body))
        status = connection.parser.get_status_code()
        headers = [field for field in connection.headers if field[0] != b"transfer-encoding"]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await _relay(connection, send)
        pool.append(connection)

    async def _connection(self, host: str, port: int, pool: list[Connection]) -> Connection:
        while pool:
            connection = pool.pop()
            if not connection.lost:
                return connection
        return (await asyncio.get_running_loop().create_connection(Connection, host, port))[1]


def _request(scope: Scope, body: bytes) -> bytes:
    start = b"%b %b HTTP/1.1" % (scope["method"].encode(), scope["raw_path"])
    parts = [start, b"host: worker", b"content-length: %d" % len(body)]
    parts += [b"%b: %b" % field for field in scope["headers"] if field[0] not in _DROPPED]
    return b"\r\n".join([*parts, b"", body])


async def _relay(connection: Connection, send: Send) -> None:
    more = True
    while more:
        if not (connection.pieces or connection.complete):
            await connection.more()
        pieces, connection.pieces = connection.pieces, []
        more = not connection.complete
        await send({"type": "http.response.body", "body": b"".join(pieces), "more_body": more})


if __name__ == "__main__":
    uvicorn.run(
        Bare(sys.argv[2:]),
        port=int(sys.argv[1]),
        http="httptools",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        log_level="error",
        proxy_headers=False,
    )
