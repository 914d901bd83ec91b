"""A worker that answers what it is told to: a real HTTP/1.1 server with a table of paths and bodies."""

from __future__ import annotations

import asyncio
import contextlib
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from router.proxy.limits import Limits
from router.proxy.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class Answer:
    """What one path gives, after so many seconds; a body that is not bytes goes out as JSON."""

    body: Any = b""
    status: int = 200
    seconds: float = 0.0

    def encoded(self) -> bytes:
        body = self.body if isinstance(self.body, bytes) else msgspec.json.encode(self.body)
        return b"HTTP/1.1 %d Scripted\r\ncontent-length: %d\r\n\r\n" % (self.status, len(body)) + body


@dataclass(slots=True)
class ScriptedWorker:
    """Its routes may be changed at any time."""

    routes: dict[str, Answer]
    port: int = 0
    connections: set[asyncio.Task[None] | None] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                path = head.split(b" ", 2)[1].decode()
                answer = self.routes.get(path, Answer({"detail": "Not Found"}, 404))
                await asyncio.sleep(answer.seconds)
                writer.write(answer.encoded())
                await writer.drain()


@asynccontextmanager
async def scripted(routes: dict[str, Answer]) -> AsyncIterator[tuple[ScriptedWorker, Upstream]]:
    """Run a worker with `routes` and an upstream to it."""
    worker = ScriptedWorker(routes)
    server = await asyncio.start_server(worker.serve, "127.0.0.1", 0)
    worker.port = server.sockets[0].getsockname()[1]
    upstream = Upstream(worker.url, limits=Limits())
    try:
        yield worker, upstream
    finally:
        await upstream.close()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*filter(None, worker.connections))
