"""How long an event takes from the engine's publish to the index that /explain reads.

64 ranks publish 1,000 events a second each, from a process of their own, over loopback, in batches of 40, 10,
4 or 1 (engines publish once a scheduler step, all that the step has stored); every event stores one block of
16 tokens behind the one before it of its sequence, as when tokens are decoded. The lag is the router's clock
when the batch can be matched less the publisher's when it was sent: one machine, one clock. The publisher
needs a core for itself. `busy`: the router's CPU time as a share of one core; where that is near 100, or
others take the core, the lag is a queue.
"""

from __future__ import annotations

import asyncio
import struct
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
from router.streams.turns import Turns

if TYPE_CHECKING:
    from router.core.events import Batch

RANKS, RATE, SECONDS = 64, 1000, 5.0
PER_BATCH = (40, 10, 4, 1)
SEQUENCES = 40
PAUSE_SECONDS = 0.0005
# After so long without a batch those that are missing will not come.
QUIET_SECONDS = 1.0


class Timed(View):
    """A view that notes the lag of each batch once it has been applied."""

    lags: list[float]

    def apply(self, batch: Batch, *, past: bool = False) -> None:
        """Apply, then look at the clock."""
        super().apply(batch, past=past)
        self.lags.append(time.time() - batch.ts)


def publish(per_batch: int) -> None:
    """Be the 64 engines; they differ in nothing, so that every batch is encoded once."""
    made = zmq.Context()
    sockets, ports = [], []
    for _ in range(RANKS):
        socket = made.socket(zmq.XPUB)
        socket.setsockopt(zmq.SNDHWM, 0)
        ports.append(socket.bind_to_random_port("tcp://127.0.0.1"))
        sockets.append(socket)
    bodies = encoded(per_batch, int(RATE * SECONDS))
    print(*ports, flush=True)
    for socket in sockets:
        socket.recv()
    print("subscribed", flush=True)
    # The ranks take turns, as engines that do not know of each other do.
    began, sent = time.time(), [0] * RANKS
    while (now := time.time()) < began + SECONDS:
        for rank, socket in enumerate(sockets):
            due = min(int((now - began) * RATE / per_batch + rank / RANKS), len(bodies))
            for number in range(sent[rank], due):
                payload = b"\x93\xcb" + struct.pack(">d", time.time()) + bodies[number] + b"\x00"
                socket.send_multipart([b"", number.to_bytes(8, "big"), payload])
            sent[rank] = due
        time.sleep(PAUSE_SECONDS)
    print(sum(sent), flush=True)
    sys.stdin.readline()


def encoded(per_batch: int, events: int) -> list[bytes]:
    """Return the arrays of events, batch by batch."""
    encode = msgspec.msgpack.Encoder().encode
    return [encode([event(at + n) for n in range(per_batch)]) for at in range(0, events, per_batch)]


def event(number: int) -> dict[str, object]:
    """Return the store of one block, the next one of one of 40 sequences."""
    return {
        "type": "BlockStored",
        "block_hashes": [number + 1],
        "parent_block_hash": number + 1 - SEQUENCES if number >= SEQUENCES else None,
        "token_ids": [number % 50_000] * 15 + [number // 50_000],
        "block_size": 16,
        "lora_id": None,
        "medium": "GPU",
    }


async def measure(per_batch: int) -> tuple[list[float], float]:
    """Return every batch's lag in seconds, and the share of a core that it took."""
    arguments = ("-m", "tests.bench.latency", str(per_batch))
    engines = await asyncio.create_subprocess_exec(sys.executable, *arguments, stdin=-1, stdout=-1)
    assert engines.stdin is not None
    assert engines.stdout is not None
    index, made, turns = Index(), context(), Turns()
    lags: list[float] = []
    streams = []
    for port in (await engines.stdout.readline()).split():
        view = Timed(index, "m", block_size=16)
        view.lags = lags
        source = EventSource(f"tcp://127.0.0.1:{port.decode()}", None, "", bind=False)
        streams.append(Stream(made, source, view, name="", turns=turns))
    await engines.stdout.readline()
    began = time.process_time()
    sent = int(await engines.stdout.readline())
    busy = (time.process_time() - began) / SECONDS
    await arrived(lags, sent)
    for stream in streams:
        stream.close()
    made.destroy(linger=0)
    engines.stdin.write(b"end\n")
    await engines.wait()
    return lags, busy


async def arrived(lags: list[float], batches: int) -> None:
    """Wait for all batches, or until no more come."""
    before, since = 0, time.monotonic()
    while len(lags) < batches and time.monotonic() < since + QUIET_SECONDS:
        if len(lags) > before:
            before, since = len(lags), time.monotonic()
        await asyncio.sleep(0.01)


def main() -> None:
    """Print the table."""
    print(f"{RANKS} ranks, {RATE} events/s each, {SECONDS:g} s; lag in ms; busy in % of a core")
    print(f"{'events/batch':>12} {'batches':>9} {'busy':>6} {'p50':>8} {'p90':>8} {'p99':>8} {'p99.9':>8}")
    for per_batch in PER_BATCH:
        lags, busy = uvloop.run(measure(per_batch))
        points = quantiles(lags, n=1000)
        shown = " ".join(f"{points[at] * 1e3:>8.2f}" for at in (499, 899, 989, 998))
        print(f"{per_batch:>12} {len(lags):>9} {busy * 100:>6.0f} {shown}")


if __name__ == "__main__":
    publish(int(sys.argv[1]))
