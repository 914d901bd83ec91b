"""Replays by engines that lie: nothing is applied twice or out of order, and no replay lasts for ever."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING

import zmq
import zmq.asyncio

from router.core.index import Index
from router.core.steps import State
from router.core.view import View
from router.engines.description import EventSource
from router.streams.sockets import context
from router.streams.stream import Stream
from tests.streams.test_stream import CLEARED, encoded, held, stored
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable

Message = tuple[int, bytes]
END = (2**64 - 1, b"")


@asynccontextmanager
async def replayed_by(answer: Callable[[int], Iterable[Message]]) -> AsyncIterator[tuple[Stream, View]]:
    """Run a stream whose publisher says nothing, and whose replays are `answer` of where they start."""
    theirs, ours = zmq.asyncio.Context(), context()
    pub, router = theirs.socket(zmq.PUB), theirs.socket(zmq.ROUTER)
    router.setsockopt(zmq.SNDHWM, 100)
    router.setsockopt(zmq.ROUTER_MANDATORY, 1)
    ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (pub, router)]

    async def serve() -> None:
        while True:
            who, _, start = await router.recv_multipart()
            with suppress(zmq.ZMQError):  # who has asked is gone
                for seq, payload in answer(int.from_bytes(start, "big")):
                    await router.send_multipart([who, b"", b"", seq.to_bytes(8, "big"), payload])
                    await asyncio.sleep(0)

    serving = asyncio.create_task(serve())
    endpoint, replay = (f"tcp://127.0.0.1:{port}" for port in ports)
    view = View(Index(), "m", block_size=4)
    source = EventSource(endpoint, replay, "", bind=False)
    stream = Stream(ours, source, view, name="test", replay_seconds=0.1)
    try:
        yield stream, view
    finally:
        stream.close()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        theirs.destroy(linger=0)
        ours.destroy(linger=0)


HISTORY = [(seq, encoded(CLEARED if not seq else stored(seq))) for seq in range(10)]


async def test_what_is_replayed_twice_is_applied_once() -> None:
    def answer(start: int) -> list[Message]:
        return [message for message in HISTORY[start:] for _ in range(2)] + HISTORY + [END, END, HISTORY[3]]

    async with replayed_by(answer) as (stream, view):
        await until(lambda: stream.state is State.LIVE)
        assert (held(view), stream.counts.batches, view.events["stored"]) == (9, 10, 9)


async def test_what_is_replayed_out_of_order_is_not_applied_late_and_the_view_says_what_it_lacks() -> None:
    async with replayed_by(lambda start: [*reversed(HISTORY[start:]), END]) as (stream, view):
        await until(lambda: stream.state is not State.REPLAYING)
        assert (held(view), stream.cursor.last_seq) == (1, 9)
        assert stream.cursor.why.startswith("the history starts at batch 9")


async def test_a_replay_without_end_is_given_up_and_what_it_brought_counts() -> None:
    def answer(start: int) -> Iterable[Message]:
        return ((seq, encoded(stored(seq), ts=float(seq))) for seq in count(start))

    async with replayed_by(answer) as (stream, view):
        await until(lambda: held(view) > 10)
        await until(lambda: stream.state is State.LIVE, "the replay to be given up")
        assert held(view) == stream.counts.batches


async def test_a_replay_of_nothing_but_what_cannot_be_read_is_not_asked_for_again_and_again() -> None:
    async with replayed_by(lambda _start: [(0, b"\xc1"), (1, b""), (2, encoded()[:-1]), END]) as (
        stream,
        view,
    ):
        await until(lambda: stream.state is State.LIVE)
        assert (held(view), stream.counts.undecodable, stream.counts.replays) == (0, 3, 1)
        assert stream.hint.startswith("the last batch was not used: not MessagePack")
