"""A stream over real sockets: what the publisher sends is what the view holds."""

from __future__ import annotations

import asyncio
import itertools
import socket
import time
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import zmq

from router.core.events import Batch, Stored
from router.core.index import Index
from router.core.steps import State
from router.core.view import View
from router.engines.description import EventSource
from router.streams.sockets import context, dealer, subscriber
from router.streams.stream import Stream
from tests.waiting import until
from workers.faults import Faults
from workers.publisher import Publisher, PublisherConfig, open_publishers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

CLEARED = {"type": "AllBlocksCleared"}
TIMES = itertools.count(1)


def stored(block: int) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": [block],
        "parent_block_hash": None,
        "token_ids": [block] * 4,
        "block_size": 4,
        "lora_id": None,
    }


def encoded(*events: Any, ts: float | None = None) -> bytes:
    return msgspec.msgpack.encode([float(next(TIMES)) if ts is None else ts, list(events), 0])


class Rig:
    """A publisher, and streams that feed views from it."""

    def __init__(self) -> None:
        self.context = context()
        self.publisher: Publisher
        self.source: EventSource
        self.config = PublisherConfig()
        self.streams: list[Stream] = []

    def open(self, config: PublisherConfig) -> None:
        (self.publisher,), endpoints = open_publishers(config, 1, self.context)
        port, replay = endpoints.port, endpoints.replay_port
        self.config = replace(config, port=port, replay_port=replay)
        replay_endpoint = None if replay is None else f"tcp://127.0.0.1:{replay}"
        self.source = EventSource(f"tcp://127.0.0.1:{port}", replay_endpoint, config.topic, bind=False)

    def listen(
        self, source: EventSource | None = None, *, replay_seconds: float = 5.0
    ) -> tuple[Stream, View]:
        view = View(Index(), "m", block_size=4)
        stream = Stream(self.context, source or self.source, view, name="test", replay_seconds=replay_seconds)
        self.streams.append(stream)
        return stream, view

    async def restart(self) -> None:
        """Another process on the same ports."""
        await self.publisher.close()
        await until(self._opened, "the ports to be free again")

    def _opened(self) -> bool:
        try:
            self.open(self.config)
        except OSError:
            return False
        return True

    async def clear_again_and_again(self, view: View) -> None:
        """Publish 500 batches that clear, and wait until the view has been emptied by each."""
        for block in range(500):
            self.publisher.send(encoded(CLEARED, stored(block)))
        await until(lambda: view.resets["all_blocks_cleared"] == 500)

    async def flow(self, stream: Stream) -> None:
        """Publish until something arrives: a new subscription takes a moment to reach the publisher."""
        before = stream.counts.batches

        def arrived() -> bool:
            if stream.counts.batches == before:
                self.publisher.send(encoded())
            return stream.counts.batches > before

        await until(arrived, "a live batch")


@asynccontextmanager
async def rig(**config: Any) -> AsyncIterator[Rig]:
    one = Rig()
    one.open(PublisherConfig(**config))
    try:
        yield one
    finally:
        for stream in one.streams:
            stream.close()
        await one.publisher.close()
        one.context.destroy(linger=0)


def held(view: View) -> int:
    return view.blocks().get("GPU", 0)


@pytest.mark.parametrize("framing", ["current", "legacy"])
async def test_a_late_stream_gets_the_whole_history_and_goes_on_live(framing: str) -> None:
    async with rig(framing=framing, topic="kv") as one:
        one.publisher.send(encoded(CLEARED))
        one.publisher.send(encoded(stored(1)))
        stream, view = one.listen()
        await until(lambda: stream.state is State.LIVE, "live")
        assert (held(view), stream.cursor.last_seq, stream.cursor.why) == (1, 1, "")
        await one.flow(stream)
        one.publisher.send(encoded(stored(2)))
        await until(lambda: held(view) == 2)


async def test_without_replay_the_view_begins_with_what_comes() -> None:
    async with rig(replay_port=None) as one:
        one.publisher.send(encoded(stored(1)))
        stream, view = one.listen()
        await one.flow(stream)
        assert stream.state is State.LIVE
        assert stream.cursor.why.startswith("the history starts at batch")
        assert held(view) == 0


async def test_a_clear_empties_the_view_when_it_arrives() -> None:
    async with rig() as one:
        one.publisher.send(encoded(stored(1)))
        stream, view = one.listen()
        await until(lambda: held(view) == 1)
        await one.flow(stream)
        one.publisher.send(encoded(CLEARED))
        await until(lambda: held(view) == 0)
        assert view.resets == {"all_blocks_cleared": 1}


async def test_clears_of_the_history_empty_the_view_and_are_no_resets_of_now(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "router.streams")
    async with rig() as one:
        for _ in range(3):
            one.publisher.send(encoded(stored(1), CLEARED, stored(2)))
        stream, view = one.listen()
        await until(lambda: stream.state is State.LIVE)
        assert (held(view), view.emptied, stream.counts.clears) == (1, 3, 3)
        await one.flow(stream)
        one.publisher.send(encoded(CLEARED, stored(3)))
        await until(lambda: view.emptied == 4)
        stream.damaged("a fault")
        stream.heal()
        await until(lambda: stream.state is State.LIVE)
        assert (held(view), view.emptied) == (1, 9)
        assert view.resets == {"all_blocks_cleared": 1, "rebuild": 1}
        assert [line for line in caplog.messages if "reset" in line] == [
            "test: view reset (all_blocks_cleared)",
            "test: view reset (rebuild)",
        ]


async def test_a_lost_batch_is_fetched() -> None:
    async with rig() as one:
        stream, view = one.listen()
        await one.flow(stream)
        # A batch that the subscriber never saw, as when its queue was full: it is in the history only.
        lost = one.publisher.seq
        one.publisher._history.append((lost.to_bytes(8, "big"), encoded(stored(1))))
        one.publisher.seq += 1
        one.publisher.send(encoded(stored(2)))
        await until(lambda: held(view) == 2)
        assert (stream.counts.gaps, stream.state) == (1, State.LIVE)


async def test_a_restarted_engine_on_the_same_ports_resets_the_view() -> None:
    async with rig() as one:
        one.publisher.send(encoded(stored(1)))
        stream, view = one.listen()
        await until(lambda: held(view) == 1)
        await one.flow(stream)
        await one.restart()
        one.publisher.send(encoded(stored(2)))
        one.publisher.send(encoded(stored(3)))
        await one.flow(stream)
        await until(lambda: stream.state is State.LIVE and held(view) == 2)
        assert view.resets == {"restart": 1}


async def test_a_silent_replay_endpoint_holds_live_batches_up_for_the_limit_only() -> None:
    async with rig(replay_port=None) as one:
        silent = one.context.socket(zmq.ROUTER)
        port = silent.bind_to_random_port("tcp://127.0.0.1")
        stream, _ = one.listen(replace(one.source, replay=f"tcp://127.0.0.1:{port}"), replay_seconds=0.05)
        await one.flow(stream)
        assert stream.state is State.LIVE
        assert "no answer to a replay" in stream.cursor.why
        silent.close(linger=0)


async def test_an_engine_that_connects_is_heard_by_a_router_that_binds() -> None:
    async with rig() as one:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            endpoint = f"tcp://127.0.0.1:{probe.getsockname()[1]}"
        await one.publisher.close()
        stream, view = one.listen(EventSource(endpoint, None, "", bind=True))
        one.open(PublisherConfig(connect=endpoint, replay_port=None))
        await one.flow(stream)
        one.publisher.send(encoded(stored(1)))
        await until(lambda: held(view) == 1)


async def test_broken_payloads_and_frames_are_counted_and_change_nothing() -> None:
    async with rig(replay_port=None) as one:
        stream, view = one.listen()
        await one.flow(stream)
        raw = one.publisher._pub
        assert raw is not None
        raw.send_multipart([b"", b"short", b""])
        raw.send_multipart([b"only one"])
        one.publisher.send(b"\xc1")
        one.publisher.send(encoded(stored(1)))
        await until(lambda: held(view) == 1)
        # A message of another shape may cost the one behind it, which is a gap.
        assert stream.counts.undecodable in (2, 3)
        assert stream.hint == ""
        assert (stream.state, stream.counts.gaps) == (State.DEGRADED, 1)


async def test_messages_with_further_frames_are_used_and_cost_no_other() -> None:
    async with rig(replay_port=None) as one:
        stream, view = one.listen()
        await one.flow(stream)
        raw, first = one.publisher._pub, (stream.cursor.last_seq or 0) + 1
        assert raw is not None
        for block in range(10):
            seq = (first + block).to_bytes(8, "big")
            raw.send_multipart([b"", seq, encoded(stored(block)), b"more", b""])
        await until(lambda: held(view) == 10)
        assert (stream.state, stream.counts.gaps) == (State.LIVE, 0)


async def test_what_makes_batches_useless_is_said_until_one_is_used() -> None:
    async with rig(replay_port=None) as one:
        stream, view = one.listen()
        await one.flow(stream)
        raw = one.publisher._pub
        assert raw is not None
        raw.send_multipart([b"\0" * 8, encoded()])
        await until(lambda: "a message of 2 frames" in stream.hint)
        one.publisher.send(b"\xc1")
        await until(lambda: "not MessagePack" in stream.hint)
        one.publisher.send(encoded(stored(1)))
        await until(lambda: held(view) == 1)
        assert stream.hint == ""


async def test_two_publishers_at_one_address_are_suspected() -> None:
    async with rig(replay_port=None) as one:
        stream, view = one.listen()
        await one.flow(stream)
        raw, last = one.publisher._pub, stream.cursor.last_seq or 0
        assert raw is not None
        for number in range(4):
            assert not stream.hint
            for seq in (last + 1 + number, 1000 + number):
                raw.send_multipart([b"", seq.to_bytes(8, "big"), encoded(stored(seq))])
        await until(lambda: stream.cursor.last_seq == 1003)
        assert "two publishers" in stream.hint
        assert held(view) <= 2


async def test_a_view_that_is_cleared_again_and_again_does_not_fill_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "router.streams")
    async with rig(replay_port=None) as one:
        stream, view = one.listen()
        await one.flow(stream)
        await one.clear_again_and_again(view)
        lines = [line for line in caplog.messages if "view reset (all_blocks_cleared)" in line]
        assert 10 <= len(lines) < 100
        one.publisher.send(encoded(CLEARED))


async def test_the_resets_that_the_log_had_no_room_for_are_told_though_no_other_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "router.streams")
    monkeypatch.setattr("router.streams.notes._A_SECOND", 5.0)
    async with rig(replay_port=None) as one:
        stream, view = one.listen()
        await one.flow(stream)
        await one.clear_again_and_again(view)

        def resets() -> list[int]:
            stream.heal()
            told = [record for record in caplog.records if "view reset" in record.message]
            return [record.fields["left_out"] for record in told]  # type: ignore[attr-defined]  # an extra

        await until(lambda: len(resets()) + sum(resets()) == 500, "all to be told")
        assert len(resets()) < 100


async def test_only_the_topic_that_was_subscribed_to_arrives() -> None:
    async with rig(topic="kv") as one:
        other, _ = one.listen(replace(one.source, topic="other", replay=None))
        stream, _ = one.listen(replace(one.source, replay=None))
        await one.flow(stream)
        assert (other.counts.batches, other.state) == (0, State.CONNECTING)


async def test_a_burst_is_applied_completely_and_lets_the_loop_turn() -> None:
    async with rig() as one:
        stream, view = one.listen()
        await one.flow(stream)
        for block in range(5000):
            one.publisher.send(encoded(stored(block)))
        turns = 0

        def done() -> bool:
            nonlocal turns
            turns += 1
            return held(view) == 5000

        await until(done)
        assert turns > 1


async def test_a_batch_that_cannot_be_applied_costs_the_view_and_not_the_stream() -> None:
    async with rig() as one:
        one.publisher.send(encoded(stored(1)))
        stream, view = one.listen()
        await until(lambda: held(view) == 1)
        await one.flow(stream)
        view.apply = refusing(view.apply)  # type: ignore[method-assign]  # a fault in our code
        one.publisher.send(encoded(stored(2), CLEARED))
        await until(lambda: held(view) == 0, "the view to be emptied")
        assert (stream.state, stream.cursor.why) == (State.DEGRADED, "a batch could not be applied")
        one.publisher.send(encoded(CLEARED, stored(4)))
        await until(lambda: stream.state is State.LIVE and held(view) == 1)


def refusing(apply: Callable[..., None]) -> Callable[..., None]:
    """Return an `apply` that fails at the store of block 2."""

    def apply_batch(batch: Batch, **how: bool) -> None:
        if any(isinstance(event, Stored) and event.hashes == [2] for event in batch.events):
            raise RuntimeError("a fault in our code")
        apply(batch, **how)

    return apply_batch


async def test_a_lost_connection_is_said_and_the_history_closes_the_hole_when_it_is_back() -> None:
    async with rig() as one:
        one.publisher.send(encoded(stored(1)))
        stream, view = one.listen()
        await until(lambda: held(view) == 1 and stream.state is State.LIVE)
        await one.publisher.close()
        await until(lambda: stream.state is State.CONNECTING, "the loss to be seen")
        assert "was lost" in stream.cursor.why
        await until(one._opened, "the ports to be free again")
        one.publisher.send(encoded(stored(2)))
        await until(lambda: held(view) == 1 and stream.state is State.LIVE, "the other process")
        assert view.resets == {"restart": 1}


async def test_the_log_has_one_line_for_a_lost_connection_and_one_when_it_is_live_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "router.streams")
    async with rig() as one:
        stream, _ = one.listen()
        await one.flow(stream)
        await until(lambda: stream.state is State.LIVE)
        await one.publisher.close()
        async with hanging_up(one.config.port) as tries:
            await until(lambda: len(tries) > 3, "more than one attempt to connect")
        await until(one._opened, "the ports to be free again")
        await one.flow(stream)
        await until(lambda: stream.state is State.LIVE)
        lines = [line.split(" (")[0] for line in caplog.messages if "reset" not in line]
        assert lines == ["test: view live", "test: view connecting", "test: view live"]
        assert "was lost)" in caplog.text


async def test_the_log_says_that_a_damaged_view_is_live_again_and_nothing_of_a_try_in_vain(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "router.streams")
    async with rig() as one:
        one.publisher.send(encoded(stored(1)))
        stream, _ = one.listen(replay_seconds=0.2)
        await until(lambda: stream.state is State.LIVE)
        one.publisher.break_down(Faults(replay="hangs"), 0)
        stream.damaged("a fault")
        stream.heal()
        await until(lambda: stream.state is State.DEGRADED, "the replay to fail")
        one.publisher.break_down(Faults(), 0)

        def healed() -> bool:
            stream.heal()
            return stream.state is State.LIVE

        await until(healed, "the view to be rebuilt")
        lines = [line.split(" (")[0] for line in caplog.messages if "reset" not in line]
        assert lines == ["test: view live", "test: view degraded", "test: view live"]


async def test_what_a_restless_view_is_in_the_end_is_told_though_the_log_is_not_filled(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "router.streams")
    monkeypatch.setattr("router.streams.notes._A_SECOND", 5.0)
    async with rig(replay_port=None) as one:
        stream, _ = one.listen()
        await one.flow(stream)
        for _ in range(200):
            stream._lost("the connection was lost")
            stream._linked(again=True)
        assert len(caplog.messages) < 100
        if "view live" in caplog.messages[-1]:
            stream._lost("the connection was lost")

        def told() -> bool:
            stream.heal()
            return f"view {stream.state}" in caplog.messages[-1]

        await until(told, "the line")


@asynccontextmanager
async def hanging_up(port: int) -> AsyncIterator[list[object]]:
    """Serve a port where every connection is closed at once, as a proxy does whose server is away."""
    tries: list[object] = []

    async def close(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tries.append(writer)
        writer.close()

    while True:
        try:
            server = await asyncio.start_server(close, "127.0.0.1", port)
            break
        except OSError:
            await asyncio.sleep(0.01)  # ZMQ frees an address some time after its socket is closed
    async with server:
        yield tries


async def test_an_address_where_nobody_is_stays_connecting() -> None:
    async with rig() as one:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        nowhere = EventSource(f"tcp://127.0.0.1:{port}", f"tcp://127.0.0.1:{port}", "", bind=False)
        stream, _ = one.listen(nowhere, replay_seconds=0.05)
        await until(lambda: "no history" in stream.cursor.why, "the replay to fail")
        assert stream.state is State.CONNECTING
        assert "no connection" in stream.cursor.why


async def test_another_topic_than_the_engines_is_named() -> None:
    async with rig(topic="kv") as one:
        one.publisher.send(encoded(stored(1)))
        stream, _ = one.listen(replace(one.source, topic="other"))
        await until(lambda: stream.hint, "the hint")
        assert "'kv'" in stream.hint
        assert "'other'" in stream.hint


async def test_a_batch_of_another_rank_is_not_used() -> None:
    async with rig() as one:
        view = View(Index(), "m", block_size=4)
        stream = Stream(one.context, one.source, view, name="test", rank=1)
        one.streams.append(stream)
        await until(lambda: stream.state is State.LIVE)
        one.publisher.send(encoded(stored(1)))
        await until(lambda: stream.counts.undecodable, "the batch to be refused")
        assert held(view) == 0


async def test_what_waits_when_the_view_is_emptied_from_outside_is_dropped() -> None:
    async with rig() as one:
        stream, view = one.listen()
        await one.flow(stream)
        for start in range(0, 50_000, 100):
            one.publisher.send(encoded(*(stored(block) for block in range(start, start + 100))))
        await until(lambda: 0 < held(view) < 50_000, "the burst to be half applied")
        view.reset("flush")
        stream.forget(until_clear=True)
        one.publisher.send(encoded(CLEARED, stored(7)))
        await until(lambda: held(view) == 1)


async def test_a_closed_stream_changes_its_view_no_more() -> None:
    async with rig() as one:
        stream, view = one.listen()
        await one.flow(stream)
        stream.close()
        stream.close()
        witness, seen = one.listen()
        await one.flow(witness)
        one.publisher.send(encoded(stored(1)))
        await until(lambda: held(seen) == 1)
        assert held(view) == 0


async def test_an_address_that_is_taken_is_said_and_tried_again_until_it_is_free() -> None:
    async with rig(replay_port=None) as one:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
            stream, view = one.listen(EventSource(endpoint, None, "", bind=True))
            assert stream.state is State.CONNECTING
            assert "in use" in stream.cursor.why
        await one.publisher.close()
        one.open(PublisherConfig(connect=endpoint, replay_port=None))
        await one.flow(stream)
        one.publisher.send(encoded(stored(1)))
        await until(lambda: held(view) == 1)


def test_an_endpoint_that_cannot_be_opened_is_an_error_that_leaves_no_socket() -> None:
    made = context()
    with pytest.raises(zmq.ZMQError):
        subscriber(made, "tcp://nowhere", "", bind=False)
    with pytest.raises(zmq.ZMQError):
        dealer(made, "nonsense")
    made.term()


async def test_a_batch_that_comes_before_it_was_sent_shows_that_the_clocks_differ() -> None:
    async with rig() as one:
        stream, _ = one.listen()
        await one.flow(stream)
        early = stream.counts.lag.early
        one.publisher.send(encoded(stored(1), ts=time.time() + 3600))
        await until(lambda: stream.counts.lag.early == early + 1, "the early batch")
        lag = stream.counts.lag
        assert lag.last is not None
        assert -3600 <= lag.last < -3000
        assert lag.shortest == lag.last


async def test_the_history_of_an_engine_does_not_count_as_late() -> None:
    async with rig() as one:
        one.publisher.send(encoded(stored(1), ts=1.0))
        one.publisher.send(encoded(stored(2), ts=2.0))
        stream, view = one.listen()
        await until(lambda: held(view) == 2, "the history")
        assert stream.counts.lag.longest is None
