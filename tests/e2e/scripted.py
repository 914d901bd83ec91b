"""A worker for the router's whole process: says who it is, and plays its answers to prompts byte by byte."""

from __future__ import annotations

import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.proxy.scripted import Peer, Worker, answer

if TYPE_CHECKING:
    import asyncio
    import ssl
    from collections.abc import AsyncIterator

    from tests.proxy.scripted import Script

INFO = json.dumps({"model_path": "stand-in", "tokenizer_path": "x", "kv_events": None}).encode()


def engine(*scripts: Script) -> Script:
    """Answer a GET as an engine does that has no events, and each POST with the next script."""
    left = list(scripts)

    async def script(peer: Peer) -> None:
        if peer.head.startswith(b"POST"):
            await (left.pop(0) if len(left) > 1 else left[0])(peer)
        else:
            await peer.send(answer(INFO))

    return script


@asynccontextmanager
async def engine_up(*scripts: Script, tls: ssl.SSLContext | None = None) -> AsyncIterator[Worker]:
    async with Worker.up(engine(*scripts), tls=tls) as worker:
        yield worker


def in_two_pieces(go_on: asyncio.Event) -> Script:
    """Answer with a stream whose second event waits until it may `go_on`."""

    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        await peer.send(b"transfer-encoding: chunked\r\n\r\n", b"7\r\ndata: 1\r\n")
        await go_on.wait()
        await peer.send(b"7\r\ndata: 2\r\n0\r\n\r\n")

    return script


def posts(worker: Worker) -> list[tuple[bytes, bytes]]:
    """Return head and body of every POST so far."""
    return [(head, body) for _, head, body in worker.requests if head.startswith(b"POST")]
