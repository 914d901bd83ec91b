"""A worker that plays its answers byte by byte, on a raw socket."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    Script = Callable[["Peer"], Awaitable[None]]


class Peer:
    """The worker's side of one connection, with the request that has just come on it."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number = number
        self.reader = reader
        self.writer = writer
        self.head = b""
        self.body = b""
        self.gone = asyncio.Event()

    @property
    def lines(self) -> list[bytes]:
        return self.head.split(b"\r\n")[:-2]

    async def next_request(self) -> bool:
        try:
            self.head = await self.reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return False
        lengths = [line[16:] for line in self.lines if line.lower().startswith(b"content-length: ")]
        self.body = await self.reader.readexactly(int(lengths[0])) if lengths else b""
        return True

    async def send(self, *pieces: bytes) -> None:
        """Write pieces so that each is read on its own: the reader is in this event loop."""
        for piece in pieces:
            if self.writer.is_closing():
                raise ConnectionResetError
            self.writer.write(piece)
            await self.writer.drain()
            for _ in range(4):
                await asyncio.sleep(0)

    async def until_gone(self) -> None:
        """Return once the client has closed the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass
        self.gone.set()

    def close(self) -> None:
        self.writer.close()

    def abort(self) -> None:
        self.writer.transport.abort()


class Worker:
    """Answers its n-th request, over all connections, with the n-th script, the last one for ever."""

    def __init__(self, *scripts: Script) -> None:
        self._scripts = itertools.chain(scripts, itertools.repeat(scripts[-1]))
        self._peers: set[Peer] = set()
        self.connections = 0
        self.requests: list[tuple[int, bytes, bytes]] = []  # connection, head, body
        self.url = ""
        self.port = 0

    @classmethod
    @contextlib.asynccontextmanager
    async def up(
        cls, *scripts: Script, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[Self]:
        worker = cls(*scripts)
        server = await asyncio.start_server(worker._serve, host, port, ssl=tls)
        worker.port = server.sockets[0].getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        worker.url = f"{'https' if tls else 'http'}://{shown}:{worker.port}"
        try:
            yield worker
        finally:
            server.close()
            for peer in list(worker._peers):
                peer.abort()
            await server.wait_closed()

    @property
    def open(self) -> int:
        """Return the number of connections that are open now."""
        return len(self._peers)

    def drop(self) -> None:
        """Close every connection, as a worker does with idle ones."""
        for peer in list(self._peers):
            peer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        peer = Peer(self.connections, reader, writer)
        self._peers.add(peer)
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            while await peer.next_request():
                self.requests.append((peer.number, peer.head, peer.body))
                await next(self._scripts)(peer)
        self._peers.discard(peer)
        writer.close()


def plays(*pieces: bytes, close: bool = False) -> Script:
    """Answer with these bytes, one read each, and close after them if told to."""

    async def script(peer: Peer) -> None:
        await peer.send(*pieces)
        if close:
            peer.close()

    return script


def chunk(data: bytes, form: bytes = b"%x") -> bytes:
    """Return one chunk of a body; `form` is how its size is written."""
    return form % len(data) + b"\r\n" + data + b"\r\n"


def answer(body: bytes, *fields: bytes, status: bytes = b"200 OK") -> bytes:
    """Return a whole answer with a content-length."""
    head = [b"HTTP/1.1 " + status, b"content-length: %d" % len(body), *fields, b"", body]
    return b"\r\n".join(head)


OK = plays(answer(b"ok"))
