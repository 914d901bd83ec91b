from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import zmq
import zmq.asyncio

from tests.workers.edge import DEADLINE, END, replay_frames
from workers.publisher import Endpoints, Publisher, PublisherConfig, open_publishers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@asynccontextmanager
async def _open(
    config: PublisherConfig, ranks: int = 1
) -> AsyncIterator[tuple[list[Publisher], Endpoints, zmq.Context[zmq.Socket[bytes]]]]:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publishers, endpoints = open_publishers(config, ranks, context)
    try:
        yield publishers, endpoints, context
    finally:
        for publisher in publishers:
            await publisher.close()
        context.term()


@asynccontextmanager
async def _subscriber(topic: bytes = b"") -> AsyncIterator[zmq.asyncio.Socket]:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.SUB)
    socket.subscribe(topic)
    try:
        yield socket
    finally:
        socket.close(linger=0)
        context.term()


async def _first(publisher: Publisher, socket: zmq.asyncio.Socket) -> list[bytes]:
    """Publish until the subscription has reached the publisher; return the first message that came."""
    while not await socket.poll(20):
        publisher.send(b"x")
    return list(await asyncio.wait_for(socket.recv_multipart(), DEADLINE))


async def test_a_message_is_topic_number_and_payload() -> None:
    config = PublisherConfig(topic="kv")
    async with _open(config) as ([publisher], endpoints, _), _subscriber(b"kv") as socket:
        socket.connect(f"tcp://127.0.0.1:{endpoints.port}")
        topic, seq, payload = await _first(publisher, socket)
        assert (topic, payload, len(seq)) == (b"kv", b"x", 8)
        following = await _first(publisher, socket)
        assert int.from_bytes(following[1], "big") > int.from_bytes(seq, "big")


async def test_every_rank_has_the_port_after_the_one_before_and_numbers_of_its_own() -> None:
    async with _open(PublisherConfig(), ranks=3) as (publishers, endpoints, _):
        publishers[1].send(b"one")
        publishers[2].send(b"two")
        assert [publisher.seq for publisher in publishers] == [0, 1, 1]
        assert endpoints.events(2) == f"tcp://*:{endpoints.port + 2}"
        assert endpoints.replay_port is not None
        frames = await replay_frames(f"tcp://127.0.0.1:{endpoints.replay_port + 2}")
        assert frames[0] == [b"", b"", bytes(8), b"two"]


async def test_replay_gives_everything_from_a_number_on_and_then_the_end() -> None:
    async with _open(PublisherConfig(topic="t")) as ([publisher], endpoints, _):
        for payload in (b"a", b"b", b"c"):
            publisher.send(payload)
        frames = await replay_frames(f"tcp://127.0.0.1:{endpoints.replay_port}", 1)
        assert frames == [
            [b"", b"t", (1).to_bytes(8, "big"), b"b"],
            [b"", b"t", (2).to_bytes(8, "big"), b"c"],
            [b"", b"", END, b""],
        ]


async def test_live_batches_are_sent_while_a_long_history_is_replayed() -> None:
    async with _open(PublisherConfig()) as ([publisher], endpoints, _):
        for _ in range(2000):
            publisher.send(b"old")
        replaying = asyncio.create_task(publisher.replay([b"who has gone meanwhile", b""], bytes(8)))
        while not replaying.done():
            publisher.send(b"live")
            await asyncio.sleep(0)
        assert publisher.seq > 2000 + 50
        frames = await replay_frames(f"tcp://127.0.0.1:{endpoints.replay_port}")
        assert [frame[-2] for frame in frames[:-1]] == [n.to_bytes(8, "big") for n in range(publisher.seq)]


async def test_the_older_framing_leaves_the_topic_out() -> None:
    config = PublisherConfig(topic="t", framing="legacy")
    async with _open(config) as ([publisher], endpoints, _):
        publisher.send(b"a")
        frames = await replay_frames(f"tcp://127.0.0.1:{endpoints.replay_port}")
        assert frames == [[b"", bytes(8), b"a"], [b"", END, b""]]


async def test_history_is_bounded_and_starts_later_without_an_error() -> None:
    async with _open(PublisherConfig(buffer_steps=2)) as ([publisher], endpoints, _):
        for payload in (b"a", b"b", b"c"):
            publisher.send(payload)
        frames = await replay_frames(f"tcp://127.0.0.1:{endpoints.replay_port}")
        assert [frame[3] for frame in frames] == [b"b", b"c", b""]


async def test_a_request_from_the_future_gets_the_end_at_once() -> None:
    async with _open(PublisherConfig()) as ([publisher], endpoints, _):
        publisher.send(b"a")
        frames = await replay_frames(f"tcp://127.0.0.1:{endpoints.replay_port}", 99)
        assert frames == [[b"", b"", END, b""]]


async def test_a_malformed_request_is_ignored() -> None:
    async with _open(PublisherConfig()) as ([publisher], endpoints, context):
        publisher.send(b"a")
        address = f"tcp://127.0.0.1:{endpoints.replay_port}"
        with context.socket(zmq.DEALER) as dealer:
            dealer.linger = 0
            dealer.connect(address)
            dealer.send_multipart([b"", b"snap"])
            assert len(await replay_frames(address)) == 2
            assert dealer.poll(0) == 0


async def test_a_publisher_can_connect_to_a_subscriber_that_binds() -> None:
    async with _subscriber() as socket:
        port = socket.bind_to_random_port("tcp://127.0.0.1")
        config = PublisherConfig(connect=f"tcp://127.0.0.1:{port}")
        async with _open(config) as ([publisher], endpoints, _):
            assert (await _first(publisher, socket))[2] == b"x"
            assert endpoints.events(0) == f"tcp://127.0.0.1:{port}"


async def test_a_taken_port_is_an_error_that_names_it() -> None:
    async with _open(PublisherConfig()) as (_publishers, endpoints, _context):
        config = replace(PublisherConfig(), port=endpoints.port)
        context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        with pytest.raises(OSError, match=str(endpoints.port)):
            open_publishers(config, 1, context)
        context.term()


async def test_without_a_replay_port_there_is_no_replay() -> None:
    async with _open(PublisherConfig(replay_port=None)) as ([publisher], endpoints, _):
        publisher.send(b"a")
        assert endpoints.replay(0) is None
