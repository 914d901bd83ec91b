"""Events from a publisher's socket to the index: blocks/s, at 1, 4, 32 and 512 blocks of 16 tokens an event.

The publisher is another process that sends as fast as it can; a real Stream on uvloop reads. Rates are per
second of CPU of the reading process, so that the publisher and others on the machine do not count. Dynamo's
indexer, and a program in Python on its RadixTree, read the same from the same publisher.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

import msgspec
import uvloop
import zmq

from router.core.index import Index
from router.core.view import View
from router.engines.description import EventSource
from router.streams.sockets import context
from router.streams.stream import Stream
from tests.bench import dynamo

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

BLOCK_SIZE = 16
CHAIN_BLOCKS = 512
SIZES = ((1, 30_000), (4, 20_000), (32, 6_000), (512, 400))
_FORK = multiprocessing.get_context("spawn")


def main() -> None:
    """Print the table."""
    print(f"ZMQ to index, blocks per second of CPU, block size {BLOCK_SIZE}; {dynamo.NEEDS}")
    print(f"{'blocks/event':>12} {'SGLang blocks/s':>16} {'vLLM':>10}", end="")
    print(f" {'indexer':>10} {'ratio':>6} {'RadixTree':>10} {'ratio':>6}" if dynamo.PYTHON else "")
    for blocks, events in SIZES:
        shared, own = (ours(blocks, events, counts_copies=copies) for copies in (False, True))
        peers = theirs(blocks, events) if dynamo.PYTHON else ()
        beside = " ".join(f"{peer:>10,.0f} {shared / peer:>6.1f}" for peer in peers)
        print(f"{blocks:>12} {shared:>16,.0f} {own:>10,.0f} {beside}")


class Publisher:
    """A process that sends `events` batches of `blocks` blocks when told to."""

    def __init__(self, blocks: int, events: int) -> None:
        self.pipe, far = _FORK.Pipe()
        self._process = _FORK.Process(target=publish, args=(far, blocks, events), daemon=True)
        self._process.start()
        self.endpoint: str = self.pipe.recv()

    def go(self) -> None:
        """Send everything, once somebody has subscribed."""
        self.pipe.send("go")
        self.pipe.recv()

    def close(self) -> None:
        self.pipe.send("end")
        self._process.join()


def ours(blocks: int, events: int, *, counts_copies: bool) -> float:
    """Return blocks/s of a Stream."""
    publisher = Publisher(blocks, events)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            seconds = runner.run(_receive(publisher, events, counts_copies=counts_copies))
    finally:
        publisher.close()
    return blocks * events / seconds


async def _receive(publisher: Publisher, events: int, *, counts_copies: bool) -> float:
    zmq_context = context()
    view = View(Index(), "m", block_size=BLOCK_SIZE, counts_copies=counts_copies)
    stream = Stream(zmq_context, EventSource(publisher.endpoint, None, "", bind=False), view, name="bench")
    await asyncio.to_thread(publisher.go)
    await _until(stream, 1)
    began = time.process_time()
    already = stream.counts.batches
    await _until(stream, events)
    seconds = (time.process_time() - began) * events / (events - already)
    stream.close()
    zmq_context.destroy(linger=0)
    return seconds


async def _until(stream: Stream, batches: int) -> None:
    while stream.counts.batches < batches:  # noqa: ASYNC110 - an event would add to what is measured
        await asyncio.sleep(0)


def theirs(blocks: int, events: int) -> tuple[float, float]:
    """Return blocks/s of Dynamo's indexer, and of a program on its RadixTree."""
    seconds = []
    for measure in (
        dynamo.indexer_seconds,
        partial(dynamo.tree_seconds, batches=events, block_size=BLOCK_SIZE),
    ):
        publisher = Publisher(blocks, events)
        try:
            seconds.append(measure(publisher.endpoint, publisher.go))
        finally:
            publisher.close()
    return blocks * events / seconds[0], blocks * events / seconds[1]


def publish(pipe: Connection, blocks: int, events: int) -> None:
    """Run in a process of its own."""
    socket = zmq.Context().socket(zmq.XPUB)
    socket.setsockopt(zmq.SNDHWM, 0)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    pipe.send(f"tcp://127.0.0.1:{port}")
    frames = [(b"", seq.to_bytes(8, "big"), body) for seq, body in enumerate(batches(blocks, events))]
    assert pipe.recv() == "go"
    socket.recv()
    pipe.send("sending")
    for frame in frames:
        socket.send_multipart(frame, copy=False)
    pipe.recv()


def batches(blocks: int, events: int) -> list[bytes]:
    """Return batches of one store each, in chains of 512 blocks."""
    rng = Random(1)
    parent: int | None = None
    found = []
    for number in range(events):
        if number * blocks % CHAIN_BLOCKS == 0:
            parent = None
        hashes = [rng.getrandbits(63) for _ in range(blocks)]
        event: dict[str, Any] = {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": parent,
            "token_ids": [rng.randrange(100_000) for _ in range(blocks * BLOCK_SIZE)],
            "block_size": BLOCK_SIZE,
            "lora_id": None,
            "medium": "GPU",
        }
        found.append(msgspec.msgpack.encode([float(number), [event], 0]))
        parent = hashes[-1]
    return found
