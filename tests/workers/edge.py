"""Talks to a stand-in over its real sockets."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import zmq
import zmq.asyncio

from workers.fleet import Fleet
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from workers.worker import Worker

DEADLINE = 20.0
END = b"\xff" * 8


async def until(condition: Callable[[], bool | Awaitable[bool]]) -> None:
    """Wait for a condition; fail when it does not come true in time."""
    deadline = monotonic() + DEADLINE
    while True:
        value = condition()
        if value if isinstance(value, bool) else await value:
            return
        assert monotonic() < deadline, "the condition did not come true"
        await asyncio.sleep(0.005)


@dataclass(slots=True)
class Edge:
    """One worker and a client for it."""

    worker: Worker
    client: httpx2.AsyncClient

    async def get(self, path: str, **arguments: Any) -> httpx2.Response:
        return await self.client.get(self.worker.url + path, **arguments)

    async def post(self, path: str, body: Any = None, **arguments: Any) -> httpx2.Response:
        return await self.client.post(self.worker.url + path, json=body, **arguments)

    async def complete(self, prompt: Any, max_tokens: int = 1, **fields: Any) -> dict[str, Any]:
        body = {"prompt": prompt, "max_tokens": max_tokens, **fields}
        answer = await self.post("/v1/completions", body)
        assert answer.status_code == 200, answer.text
        value: dict[str, Any] = answer.json()
        return value

    async def cached(self, prompt: Any, **fields: Any) -> int:
        usage = (await self.complete(prompt, **fields))["usage"]
        return int(usage["prompt_tokens_details"]["cached_tokens"])

    async def truth(self, rank: int = 0) -> dict[str, Any]:
        value: dict[str, Any] = (await self.get("/_truth")).json()["ranks"][rank]
        return value

    async def batches(self, rank: int = 0, start: int = 0) -> list[tuple[int, list[Any]]]:
        """Return seq and events of every batch since `start`, from the replay socket."""
        address = self.worker.describe()["ranks"][rank]["replay"]
        return [(seq, events) for seq, _ts, events, _rank in await replay(address, start)]

    async def events(self, rank: int = 0, start: int = 0) -> list[Any]:
        return [event for _seq, events in await self.batches(rank, start) for event in events]


async def replay(address: str, start: int = 0) -> list[tuple[int, float, list[Any], int]]:
    """Return (seq, ts, events, rank) of every batch a replay socket has from `start` on."""
    batches = []
    for *_, seq, payload in await replay_frames(address, start):
        if seq != END:
            ts, events, rank = msgspec.msgpack.decode(payload)
            batches.append((int.from_bytes(seq, "big"), ts, events, rank))
    return batches


async def replay_frames(address: str, start: int = 0) -> list[list[bytes]]:
    """Return the raw replies to one replay request, the end marker included."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    try:
        socket.ipv6 = True
        socket.connect(address)
        await socket.send_multipart([b"", start.to_bytes(8, "big")])
        replies: list[list[bytes]] = []
        while not replies or replies[-1][-2] != END:
            replies.append(await asyncio.wait_for(socket.recv_multipart(), DEADLINE))
        return replies
    finally:
        socket.close(linger=0)
        context.term()


def events_of_stream(text: str) -> list[Any]:
    """Return the events of a complete SSE answer, which must end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@asynccontextmanager
async def running(*specs: WorkerSpec) -> AsyncIterator[list[Edge]]:
    """Run workers in this process for the length of a test."""
    async with Fleet(specs) as fleet, httpx2.AsyncClient(timeout=DEADLINE) as client:
        yield [Edge(worker, client) for worker in fleet.workers]


@asynccontextmanager
async def one(**fields: Any) -> AsyncIterator[Edge]:
    """Run one worker."""
    async with running(WorkerSpec(**fields)) as edges:
        yield edges[0]
