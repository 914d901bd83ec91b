"""A worker that says who it is and answers prompts with what it is told to, headers included."""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

INFO = json.dumps({"model_path": "stand-in", "tokenizer_path": "x", "kv_events": None}).encode()
GOOD = b'{"id": "x", "usage": {}}'


def raw(status: int, body: bytes, *fields: bytes) -> bytes:
    """Return a whole answer with these fields of its head, beside its length."""
    lines = (b"HTTP/1.1 %d It" % status, b"content-length: %d" % len(body), *fields, b"", body)
    return b"\r\n".join(lines)


@dataclass(slots=True)
class Stub:
    """`answer` is for prompts, `said` for every question; both may be changed at any time.

    So many prompts as `cuts` says are answered by the end of the connection.
    """

    answer: bytes = field(default_factory=lambda: raw(200, GOOD))
    said: bytes = field(default_factory=lambda: raw(200, INFO))
    cuts: int = 0
    url: str = ""
    asked: int = 0
    connections: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests."""
        self.connections += 1
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                _, given, rest = head.partition(b"content-length: ")
                await reader.readexactly(int(rest.split(b"\r\n")[0]) if given else 0)
                self.asked += head.startswith(b"post")
                if head.startswith(b"post") and self.cuts:
                    self.cuts -= 1
                    return
                writer.write(self.answer if head.startswith(b"post") else self.said)


@asynccontextmanager
async def stub() -> AsyncIterator[Stub]:
    """Run one."""
    worker = Stub()
    server = await asyncio.start_server(worker.serve, "127.0.0.1", 0)
    worker.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield worker
