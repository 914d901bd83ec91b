"""A worker with a POST /tokenize of its own: a real HTTP/1.1 server that answers by calling a function."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from router.proxy.upstream import Upstream

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


@asynccontextmanager
async def worker(answer: Callable[[dict[str, Any]], tuple[int, Any] | None]) -> AsyncIterator[Upstream]:
    """Run it; `answer` maps a question's body to status and body, or to None for no answer ever."""
    tasks: set[asyncio.Task[None] | None] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length: ")[2].split(b"\r\n")[0])
                answered = answer(json.loads(await reader.readexactly(length)))
                if answered is None:
                    await reader.readexactly(1)
                    return
                body = json.dumps(answered[1]).encode()
                writer.write(b"HTTP/1.1 %d X\r\ncontent-length: %d\r\n\r\n" % (answered[0], len(body)) + body)
                await writer.drain()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    try:
        yield upstream
    finally:
        await upstream.close()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*filter(None, tasks))
