"""How long an event takes from the engine's publish to the index that /explain reads.

64 ranks publish 1,000 events a second each, from a process of their own, over loopback, in batches of 1, 10
or 40; every event stores one block of 16 tokens. The lag is the router's clock when the batch can be matched
less the publisher's when it was sent: one machine, one clock. The publisher needs a core for itself.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from statistics import quantiles
from typing import TYPE_CHECKING

import msgspec
import uvloop
import zmq

from router.core.index import Index
from router.core.view import View
from router.engines.description import EventSource
from router.streams.sockets import context
from router.streams.stream import Stream

if TYPE_CHECKING:
    from router.core.wire import Batch

RANKS, RATE, SECONDS = 64, 1000, 5.0
PER_BATCH = (40, 10, 1)
PAUSE_SECONDS = 0.001


class Timed(View):
    """A view that notes the lag of each batch once it has been applied."""

    lags: list[float]

    def apply(self, batch: Batch) -> None:
        """Apply, then look at the clock."""
        super().apply(batch)
        self.lags.append(time.time() - batch.ts)


def publish(per_batch: int) -> None:
    """Be the 64 engines."""
    made = zmq.Context()
    sockets, ports = [], []
    for _ in range(RANKS):
        socket = made.socket(zmq.PUB)
        ports.append(socket.bind_to_random_port("tcp://127.0.0.1"))
        sockets.append(socket)
    print(json.dumps(ports), flush=True)
    sys.stdin.readline()
    encode = msgspec.msgpack.Encoder().encode
    # The ranks take turns, as engines that do not know of each other do.
    began, sent = time.time(), [0] * RANKS
    while (now := time.time()) < began + SECONDS:
        for rank, socket in enumerate(sockets):
            due = int((now - began) * RATE / per_batch + rank / RANKS)
            for number in range(sent[rank], due):
                events = [event(number * per_batch + n) for n in range(per_batch)]
                payload = encode([time.time(), events, 0])
                socket.send_multipart([b"", number.to_bytes(8, "big"), payload])
            sent[rank] = due
        time.sleep(PAUSE_SECONDS)


def event(number: int) -> dict[str, object]:
    """Return the store of one block."""
    return {
        "type": "BlockStored",
        "block_hashes": [number],
        "parent_block_hash": None,
        "token_ids": [number % 50_000] * 15 + [number // 50_000],
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
    }


async def measure(per_batch: int) -> list[float]:
    """Return every batch's lag in seconds."""
    arguments = ("-m", "tests.bench.latency", str(per_batch))
    engines = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=-1, stdout=-1)
    assert engines.stdin is not None
    assert engines.stdout is not None
    ports = json.loads(await engines.stdout.readline())
    index, made = Index(), context()
    lags: list[float] = []
    streams = []
    for port in ports:
        view = Timed(index, "m", block_size=16)
        view.lags = lags
        streams.append(
            Stream(made, EventSource(f"tcp://127.0.0.1:{port}", None, "", bind=False), view, name="")
        )
    await asyncio.sleep(1)
    engines.stdin.write(b"go\n")
    await engines.wait()
    await asyncio.sleep(1)
    for stream in streams:
        stream.close()
    made.destroy(linger=0)
    return lags


def main() -> None:
    """Print the table."""
    print(f"{RANKS} ranks, {RATE} events/s each, {SECONDS:g} s; lag in ms")
    print(f"{'events/batch':>12} {'batches':>9} {'p50':>8} {'p90':>8} {'p99':>8} {'p99.9':>8}")
    for per_batch in PER_BATCH:
        lags = uvloop.run(measure(per_batch))
        points = quantiles(lags, n=1000)
        shown = " ".join(f"{points[at] * 1e3:>8.2f}" for at in (499, 899, 989, 998))
        print(f"{per_batch:>12} {len(lags):>9} {shown}")


if __name__ == "__main__":
    publish(int(sys.argv[1]))
