"""Every fault that a stand-in can be told to make, over real sockets."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import msgspec
import pytest
import zmq
import zmq.asyncio

from tests.workers.edge import DEADLINE, END, Edge, one, replay_frames, until
from workers.faults import NONE, Dice, FaultError, Faults, faults_from, parse_faults
from workers.publisher import PublisherConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

SMALL = list(range(40))


class Subscriber:
    """Numbers and payloads of what a PUB socket has sent since the subscription was seen to work."""

    def __init__(self, socket: zmq.asyncio.Socket) -> None:
        self.socket = socket
        self.received: list[tuple[int, bytes]] = []

    @property
    def numbers(self) -> list[int]:
        return [number for number, _ in self.received]

    async def read(self) -> None:
        while True:
            _, number, payload = await self.socket.recv_multipart()
            self.received.append((int.from_bytes(number, "big"), payload))


@asynccontextmanager
async def _subscribed(edge: Edge) -> AsyncIterator[Subscriber]:
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.SUB)
    socket.subscribe(b"")
    socket.setsockopt(zmq.RECONNECT_IVL, 10)
    socket.connect(edge.worker.describe()["ranks"][0]["kv"])
    subscriber = Subscriber(socket)
    reading = asyncio.create_task(subscriber.read())
    try:
        await _reached(edge, subscriber)
        subscriber.received.clear()
        yield subscriber
    finally:
        reading.cancel()
        socket.close(linger=0)
        context.term()


async def _reached(edge: Edge, subscriber: Subscriber) -> None:
    """Publish until a batch comes, and then until the last one has come."""

    async def heard() -> bool:
        await _store(edge)
        return subscriber.received != []

    await until(heard)
    await until(lambda: subscriber.numbers[-1] == _last(edge))


_next_token = iter(range(1000, 10_000_000, 40))


async def _store(edge: Edge, times: int = 1) -> None:
    """Have new blocks stored: one batch each."""
    for _ in range(times):
        first = next(_next_token)
        await edge.complete(list(range(first, first + 40)))


def _last(edge: Edge) -> int:
    publisher = edge.worker.drivers[0].publisher
    assert publisher is not None
    return publisher.seq - 1


async def _tell(edge: Edge, **faults: Any) -> dict[str, Any]:
    answer = await edge.post("/_faults", faults)
    assert answer.status_code == 200, answer.text
    value: dict[str, Any] = answer.json()
    return value


async def _store_and_heal(edge: Edge, times: int, **faults: Any) -> tuple[int, int]:
    """Store blocks under a plan, end it, store one more; return the first and last number under it."""
    first = _last(edge) + 1
    await _tell(edge, **faults)
    await _store(edge, times)
    last = _last(edge)
    await _tell(edge)
    await _store(edge)
    return first, last


async def _heard_all(edge: Edge, subscriber: Subscriber) -> None:
    await until(lambda: subscriber.numbers[-1:] == [_last(edge)])


async def test_lost_batches_do_not_come_but_a_replay_has_them() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        first, last = await _store_and_heal(edge, 12, lose=0.5, seed=3)
        await _heard_all(edge, subscriber)
        missing = set(range(first, last + 1)) - set(subscriber.numbers)
        assert 0 < len(missing) < 12
        assert missing <= {seq for seq, _ in await edge.batches()}


async def test_a_hole_is_a_number_that_no_replay_has() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        first, last = await _store_and_heal(edge, 3, hole=1.0)
        await _heard_all(edge, subscriber)
        holes = set(range(first, last + 1))
        assert not holes & set(subscriber.numbers)
        assert not holes & {seq for seq, _ in await edge.batches()}


async def test_a_duplicated_batch_comes_twice() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        first, last = await _store_and_heal(edge, 3, duplicate=1.0)
        await _heard_all(edge, subscriber)
        wanted = [number for number in range(first, last + 1) for _ in range(2)]
        assert [number for number in subscriber.numbers if number <= last] == wanted


async def test_a_delayed_batch_comes_after_later_ones() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        await _tell(edge, delay=0.5, delay_seconds=0.2, seed=1)
        await _store(edge, 8)
        await until(lambda: len(subscriber.received) == 8)
        assert sorted(subscriber.numbers) != subscriber.numbers
        assert sorted(subscriber.numbers) == list(range(_last(edge) - 7, _last(edge) + 1))


async def test_a_reordered_batch_comes_after_the_next_one() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        await _tell(edge, reorder=0.5, seed=2)
        await _store(edge, 9)
        numbers = list(range(_last(edge) - 8, _last(edge) + 1))
        await until(lambda: len(subscriber.received) >= 8)
        assert subscriber.numbers != sorted(subscriber.numbers)
        assert set(subscriber.numbers) <= set(numbers)


async def test_the_same_seed_makes_the_same_faults() -> None:
    heard = []
    for seed in (5, 5, 6):
        async with one() as edge, _subscribed(edge) as subscriber:
            first, last = await _store_and_heal(edge, 16, lose=0.4, duplicate=0.3, seed=seed)
            await _heard_all(edge, subscriber)
            heard.append([number - first for number in subscriber.numbers if number <= last])
    assert heard[0] == heard[1] != heard[2]


async def test_events_that_cannot_be_decoded_come_among_good_ones() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        await _tell(edge, bad_event=1.0)
        await _store(edge)
        await _heard_all(edge, subscriber)
        events = msgspec.msgpack.decode(subscriber.received[-1][1])[1]
        assert events[0] == {"type": "BlockStored", "block_hashes": "nonsense"}
        assert any(isinstance(event, dict) and len(event["block_hashes"]) == 2 for event in events[1:-2])
        assert not isinstance(events[-1], dict)


async def test_a_batch_that_cannot_be_decoded_is_good_again_in_a_replay() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        await _tell(edge, bad_batch=1.0)
        await _store(edge)
        await _heard_all(edge, subscriber)
        with pytest.raises(msgspec.DecodeError):
            msgspec.msgpack.decode(subscriber.received[-1][1])
        assert (await edge.batches(start=_last(edge)))[0][1] != []


async def test_a_silent_publisher_goes_on_counting_and_can_be_healed() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        first, last = await _store_and_heal(edge, 3, silent=True)
        await _heard_all(edge, subscriber)
        assert subscriber.numbers == [last + 1]
        assert [seq for seq, _ in await edge.batches(start=first)] == [first, first + 1, last, last + 1]


async def test_a_dead_publisher_closes_its_socket_until_it_is_healed() -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        _, last = await _store_and_heal(edge, 2, dead=True)
        await _reached(edge, subscriber)
        assert min(subscriber.numbers) > last


async def test_a_publisher_may_start_late() -> None:
    async with one(faults=Faults(late=600.0)) as edge:
        port = int(edge.worker.describe()["ranks"][0]["kv"].rsplit(":", 1)[1])
        await until(lambda: edge.worker.misdeeds()["faults"]["late"] == 600.0)
        with pytest.raises(OSError, match="onnect"):
            await asyncio.open_connection("127.0.0.1", port)
        await _store(edge)
        await _tell(edge)
        async with _subscribed(edge):
            assert (await edge.batches())[0][0] == 0
    async with one(faults=Faults(late=0.1)) as edge, _subscribed(edge):
        assert edge.worker.misdeeds()["faults"]["late"] == 0.1


async def test_a_burst_past_the_high_water_mark_leaves_a_gap_for_a_slow_reader() -> None:
    async with one(events=PublisherConfig(hwm=4)) as edge:
        context = zmq.Context()
        with context.socket(zmq.SUB) as socket:
            socket.linger = 0
            socket.rcvhwm = 2
            socket.subscribe(b"")
            socket.connect(edge.worker.describe()["ranks"][0]["kv"])

            async def heard() -> bool:
                await _store(edge)
                return bool(socket.poll(20))

            await until(heard)
            before = _last(edge)
            await _tell(edge, burst=400, burst_bytes=100_000)
            await until(lambda: _last(edge) >= before + 400)
            numbers = []
            while socket.poll(200):
                numbers.append(int.from_bytes(socket.recv_multipart()[1], "big"))
        context.term()
        assert len(numbers) < 400
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("lose_first", [0, 2])
async def test_a_restart_begins_at_0_on_the_same_ports_with_nothing_cached(lose_first: int) -> None:
    async with one() as edge, _subscribed(edge) as subscriber:
        started, before = edge.worker.edge.started, edge.worker.describe()
        await edge.post("/pause_generation", {"mode": "in_place"})
        hanging = asyncio.create_task(edge.complete(SMALL))
        await until(lambda: edge.worker.edge.live == 1)
        await _tell(edge, restart=True, lose_first=lose_first)
        with pytest.raises(httpx2.HTTPError):
            await hanging
        await until(lambda: edge.worker.edge.started > started)
        subscriber.received.clear()
        assert edge.worker.describe() == before
        assert (await edge.get("/ready")).status_code == 200
        await _reached(edge, subscriber)
        assert subscriber.numbers[0] >= lose_first
        assert [seq for seq, _ in await edge.batches()][:2] == [0, 1]
        assert (await edge.events())[0]["type"] == "AllBlocksCleared"


@pytest.mark.parametrize(
    ("how", "numbers", "ended"),
    [("whole", [0, 1, 2, 3], True), ("short", [3], True), ("no_end", [0, 1, 2, 3], False)],
)
async def test_how_a_replay_is_answered(how: str, numbers: list[int], ended: bool) -> None:
    async with one() as edge:
        await _store(edge, 3)
        await _tell(edge, replay=how)
        frames = await _frames(edge, len(numbers) + ended)
        assert [int.from_bytes(frame[-2], "big") for frame in frames if frame[-2] != END] == numbers
        assert (frames[-1][-2] == END) is ended


async def test_a_replay_may_hang_or_have_the_older_framing_or_not_be_there() -> None:
    async with one() as edge:
        await _tell(edge, replay="hangs")
        assert await _frames(edge, 0) == []
        await _tell(edge, replay="legacy")
        await _store(edge)
        frames = await replay_frames(edge.worker.describe()["ranks"][0]["replay"])
        assert [len(frame) for frame in frames] == [3, 3, 3]
    async with one(events=PublisherConfig(replay_port=None)) as edge:
        assert edge.worker.describe()["ranks"][0]["replay"] is None


async def _frames(edge: Edge, wanted: int) -> list[list[bytes]]:
    """Ask for a replay from 0 and return its replies, which must be so many and no more."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.DEALER)
    try:
        socket.connect(edge.worker.describe()["ranks"][0]["replay"])
        await socket.send_multipart([b"", bytes(8)])
        frames = [await asyncio.wait_for(socket.recv_multipart(), DEADLINE) for _ in range(wanted)]
        assert not await socket.poll(100)
        return frames
    finally:
        socket.close(linger=0)
        context.term()


@pytest.mark.parametrize("status", [429, 404, 500, 503])
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_requests_are_refused_with_any_status(engine: Any, status: int) -> None:
    async with one(engine=engine) as edge:
        await _tell(edge, status=status)
        answer = await edge.post("/v1/completions", {"prompt": SMALL})
        error = answer.json()["error"] if engine == "vllm" else answer.json()
        assert (answer.status_code, error["code"]) == (status, status)
        assert ("retry-after" in answer.headers) == (status in {429, 503})
        assert (await edge.get("/health")).status_code == 200
        await _tell(edge, status=status, all_routes=True)
        assert (await edge.get("/health")).status_code == status


async def test_a_share_of_requests_is_refused_the_same_in_every_run() -> None:
    runs = []
    for _ in range(2):
        async with one() as edge:
            await _tell(edge, status=500, refuse_share=0.5, seed=4)
            body = {"prompt": SMALL, "max_tokens": 1}
            answers = [(await edge.post("/v1/completions", body)).status_code for _ in range(12)]
            runs.append(answers)
            assert (await edge.get("/_faults")).json()["counts"]["http"]["refuse_share"] == answers.count(500)
    assert runs[0] == runs[1]
    assert set(runs[0]) == {200, 500}


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_is_reset_in_its_middle(stream: bool) -> None:
    async with one() as edge:
        await _tell(edge, reset=1.0)
        body = {"prompt": SMALL, "max_tokens": 400, "stream": stream}
        async with edge.client.stream("POST", edge.worker.url + "/v1/completions", json=body) as answer:
            assert answer.status_code == 200
            pieces = answer.aiter_bytes()
            assert await anext(pieces) != b""
            with pytest.raises(httpx2.TransportError):
                assert [piece async for piece in pieces] != []


async def test_a_stream_hangs_after_its_first_piece_until_the_client_goes() -> None:
    async with one() as edge:
        await _tell(edge, hang=1.0)
        body = {"prompt": SMALL, "max_tokens": 400, "stream": True}
        async with edge.client.stream("POST", edge.worker.url + "/v1/completions", json=body) as answer:
            pieces = answer.aiter_bytes()
            assert await anext(pieces) != b""
            await until(edge.worker.drivers[0].rank.idle)
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(pieces), 0.1)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_answer_without_end(stream: bool) -> None:
    async with one() as edge:
        await _tell(edge, endless=1.0)
        body = {"prompt": SMALL, "max_tokens": 2, "stream": stream}
        got = b""
        async with edge.client.stream("POST", edge.worker.url + "/v1/completions", json=body) as answer:
            async for piece in answer.aiter_bytes():
                got += piece
                if got.endswith(b"\n" * 6):
                    break
        assert (b"[DONE]" in got) is stream


async def test_the_first_byte_may_be_slow() -> None:
    async with one() as edge:
        await _tell(edge, slow=0.2)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await edge.complete(SMALL)
        assert loop.time() - began >= 0.2


async def test_connections_are_refused_for_a_while() -> None:
    async with one() as edge:
        await _tell(edge, refuse=0.4)

        async def refused() -> bool:
            try:
                await edge.get("/health")
            except httpx2.TransportError:
                return True
            return False

        await until(refused)
        await until(lambda: _healthy(edge))


async def _healthy(edge: Edge) -> bool:
    try:
        return bool((await edge.get("/health")).status_code == 200)
    except httpx2.TransportError:
        return False


async def test_a_half_open_socket_is_taken_and_never_read() -> None:
    async with one() as edge:
        url = httpx2.URL(edge.worker.url)
        await _tell(edge, half_open=0.5)
        await until(lambda: edge.worker._server.mode == "deaf")
        reader, writer = await asyncio.open_connection(url.host, url.port)
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        writer.close()
        await until(lambda: _healthy(edge))


@pytest.mark.parametrize(
    ("engine", "pause", "end"),
    [
        ("sglang", "/pause_generation", "/continue_generation"),
        ("vllm", "/pause", "/resume"),
        ("vllm", "/sleep", "/wake_up"),
    ],
)
async def test_a_pause_lasts(engine: Any, pause: str, end: str) -> None:
    async with one(engine=engine) as edge:
        await _tell(edge, hold_pause=0.3)
        await edge.post(pause)
        ending = asyncio.create_task(edge.post(end))
        asked = asyncio.create_task(edge.complete(SMALL))
        assert edge.worker.edge.paused
        await ending
        assert not edge.worker.edge.paused
        assert (await asked)["usage"]["completion_tokens"] == 1


async def test_a_worker_may_be_told_at_its_start() -> None:
    async with one(faults=faults_from(("hole=1", "seed=9"))) as edge:
        await _store(edge)
        assert await edge.batches() == []
        told = (await edge.get("/_faults")).json()
        assert (told["faults"]["hole"], told["faults"]["seed"]) == (1.0, 9)
        assert told["counts"]["ranks"][0]["hole"] == _last(edge) + 1


async def test_a_fault_that_there_is_not_is_a_400_that_names_it() -> None:
    async with one() as edge:
        for body in ({"loose": 1}, {"lose": "often"}):
            answer = await edge.post("/_faults", body)
            assert answer.status_code == 400
            assert next(iter(body)) in answer.text


@pytest.mark.parametrize("settings", [("loose=1",), ("lose=often",), ("replay=never",)])
def test_a_setting_that_there_is_not_is_refused(settings: tuple[str, ...]) -> None:
    with pytest.raises(FaultError, match=settings[0].partition("=")[0]):
        faults_from(settings)


def test_a_plan_is_read_from_json_and_from_settings_alike() -> None:
    assert parse_faults(json.dumps({"lose": 0.5, "silent": True}).encode()) == faults_from(
        ("lose=0.5", "silent=true")
    )
    assert parse_faults(b"{}") == NONE


def test_dice_draw_once_per_name_whatever_the_chances() -> None:
    sometimes = Dice(Faults(seed=1, lose=0.5), "x")
    other = Dice(Faults(seed=1, lose=0.5, duplicate=1.0), "x")
    for _ in range(50):
        assert ("lose" in sometimes.roll("lose", "duplicate")) == ("lose" in other.roll("lose", "duplicate"))
