"""What an engine really publishes, heard beside the router: the order and the time of its events."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import zmq
import zmq.asyncio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(slots=True)
class Listener:
    """`batches`: when each came (monotonic seconds), and its events as they are on the wire."""

    batches: list[tuple[float, list[dict[str, Any]]]] = field(default_factory=list)
    _came: asyncio.Event = field(default_factory=asyncio.Event)

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return all events of a kind so far."""
        return [event for _, events in self.batches for event in events if event["type"] == kind]

    def clears(self) -> int:
        """Return how many times the engine has said so far that its cache is empty."""
        return len(self.events("AllBlocksCleared"))

    async def has_cleared(self, times: int) -> bool:
        """Whether it has said so that many times."""
        return self.clears() >= times

    async def listen(self, socket: zmq.asyncio.Socket) -> None:
        """Take in all that comes."""
        while True:
            _, _, payload = await socket.recv_multipart()
            self.batches.append((time.monotonic(), msgspec.msgpack.decode(payload)[1]))
            self._came.set()

    async def silence(self, seconds: float) -> None:
        """Wait until nothing has come for so long: what a step has evicted is told beside its answer."""
        with suppress(TimeoutError):
            while True:
                self._came.clear()
                await asyncio.wait_for(self._came.wait(), seconds)


@asynccontextmanager
async def listening(port: int) -> AsyncIterator[Listener]:
    """Subscribe to a port of this machine for as long as the block lasts."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.SUB)
    socket.subscribe(b"")
    socket.connect(f"tcp://127.0.0.1:{port}")
    listener = Listener()
    task = asyncio.create_task(listener.listen(socket))
    try:
        yield listener
    finally:
        task.cancel()
        context.destroy(linger=0)
