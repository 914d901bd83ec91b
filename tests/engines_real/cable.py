"""A cable between the router and one TCP port of an engine, which can be cut and mended."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Cable:
    """Carries bytes from its own `port` to another one of this machine; `whole` unless it is cut."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.whole = True
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._dead = 0

    def cut(self) -> None:
        """End every connection at once, and each new one as soon as it is made."""
        self.whole = False
        for writer in list(self._writers):
            writer.transport.abort()

    def mend(self) -> None:
        """Carry bytes again, of new connections."""
        self.whole = True

    def hold(self) -> None:
        """Keep what comes, until it is let go."""
        self._flows.clear()

    def let_go(self) -> None:
        """Carry what was kept, and what comes."""
        self._flows.set()

    def go_dead(self) -> None:
        """Carry nothing more of the connections that there are, and end none: neither side is told."""
        self._dead += 1

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Carry one connection until either side, or somebody with scissors, ends it."""
        if not self.whole:
            writer.transport.abort()
            return
        their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._target)
        pair = {writer, their_writer}
        self._writers |= pair
        await asyncio.wait(
            [
                asyncio.ensure_future(self._carry(reader, their_writer)),
                asyncio.ensure_future(self._carry(their_reader, writer)),
            ],
            return_when=asyncio.FIRST_COMPLETED,
        )
        for one in pair:
            one.transport.abort()
        self._writers -= pair

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        born = self._dead
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                await self._flows.wait()
                if born == self._dead:
                    writer.write(data)
                    await writer.drain()


@asynccontextmanager
async def cable(target: int) -> AsyncIterator[Cable]:
    """Lay a cable to a port for as long as the block lasts."""
    laid = Cable(target)
    server = await asyncio.start_server(laid.serve, "127.0.0.1", 0)
    laid.port = server.sockets[0].getsockname()[1]
    try:
        yield laid
    finally:
        server.close()
        laid.cut()
