from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from router.errors import UpstreamFailed
from router.proxy.limits import Limits
from router.proxy.relay import Relayed
from router.proxy.upstream import Upstream
from tests.proxy.scripted import Peer, Worker, answer, chunk, plays
from tests.proxy.serving import Proxy, served
from tests.waiting import until

if TYPE_CHECKING:
    from tests.proxy.scripted import Script

EVENTS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def event(data: bytes) -> bytes:
    return b"data: " + data + b"\n\n"


async def test_a_stream_arrives_byte_for_byte() -> None:
    data = [b"{\xff\x00%d}" % number * (number + 1) for number in range(50)]
    wire = b"".join(chunk(event(piece)) for piece in data) + END
    pieces = [wire[start : start + 33] for start in range(0, len(wire), 33)]
    async with Worker.up(plays(EVENTS, *pieces)) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy) as port:
            client = Upstream(f"http://127.0.0.1:{port}")
            response = await client.request(b"POST", b"/v1/completions", [(b"te", b"x"), (b"a", b"b")], b"{}")
            assert await response.read_all(1 << 20) == b"".join(map(event, data))
            fields = dict(response.headers)
            assert fields[b"content-type"] == b"text/event-stream; charset=utf-8"
            assert fields[b"x-extra"] == b"1"
            assert proxy.starts == 1
            assert proxy.relayed[0].failure is None
        _, head, body = worker.requests[0]
        assert head.startswith(b"POST /v1/completions HTTP/1.1\r\n")
        assert b"\r\na: b\r\n" in head
        assert b"te:" not in head
        assert body == b"{}"


async def test_the_first_chunk_is_there_before_the_last_is_made() -> None:
    asked = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(EVENTS + chunk(event(b"1")))
        await asked.wait()
        await peer.send(chunk(event(b"2")))
        await peer.send(END)

    async with Worker.up(script) as worker, served(Proxy(Upstream(worker.url))) as port:
        response = await Upstream(f"http://127.0.0.1:{port}").request(b"POST", b"/", [])
        assert await response.read() == event(b"1")
        asked.set()
        assert await response.read_all(100) == event(b"2")


@pytest.mark.parametrize("size", [0, 1, 100_000, 1_000_000])
async def test_a_plain_answer_arrives_whole_on_a_connection_that_is_kept(size: int) -> None:
    body = bytes(range(251)) * (size // 251 + 1)
    async with (
        Worker.up(plays(answer(body[:size], b"x-a: b"))) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        client = Upstream(f"http://127.0.0.1:{port}")
        for _ in range(3):
            response = await client.request(b"POST", b"/", [])
            assert await response.read_all(1 << 20) == body[:size]
            assert (b"content-length", b"%d" % size) in response.headers
            assert len(client._idle) == 1
        assert worker.connections == 1


@pytest.mark.parametrize(("method", "status"), [(b"HEAD", b"200 OK"), (b"GET", b"204 No Content")])
async def test_an_answer_without_a_body_is_not_held_back(method: bytes, status: bytes) -> None:
    async with (
        Worker.up(plays(b"HTTP/1.1 " + status + b"\r\nx-a: b\r\n\r\n", close=True)) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        response = await Upstream(f"http://127.0.0.1:{port}").request(method, b"/", [])
        assert response.status == int(status[:3])
        assert await response.read() == b""
        assert (b"x-a", b"b") in response.headers


@pytest.mark.parametrize("status", [204, 304])
async def test_an_answer_that_may_have_no_body_has_none_whatever_its_length_says(
    status: int, caplog: pytest.LogCaptureFixture
) -> None:
    plain = plays(b"HTTP/1.1 %d X\r\ncontent-length: 5\r\n\r\n" % status)
    async with Worker.up(plain, plays(answer(b"ok"))) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy) as port:
            client = Upstream(f"http://127.0.0.1:{port}")
            response = await client.request(b"GET", b"/", [])
            assert (response.status, await response.read()) == (status, b"")
            response = await client.request(b"GET", b"/", [])
            assert await response.read_all(10) == b"ok"
            assert proxy.starts == 2
            assert worker.connections == 1
    assert not caplog.records


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with (
        Worker.up(plays(answer(b"one")), plays(answer(b"two"))) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /1 HTTP/1.1\r\nhost: a\r\n\r\n" * 2)
        assert (await reader.readuntil(b"one")).startswith(b"HTTP/1.1 200")
        assert (await reader.readuntil(b"two")).startswith(b"HTTP/1.1 200")
        writer.close()


async def test_a_client_that_waits_for_100_gets_it() -> None:
    async with (
        Worker.up(plays(answer(b"ok"))) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
        writer.close()
        assert b"expect" not in worker.requests[0][1]


# cuts


async def test_a_worker_lost_before_the_first_byte_has_sent_nothing() -> None:
    async with Worker.up(plays(EVENTS, close=True)) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy) as port:
            response = await Upstream(f"http://127.0.0.1:{port}").request(b"POST", b"/", [])
            assert response.status == 502
            assert json.loads(await response.read_all(1000))["error"]["code"] == "worker_failed"
        assert len(proxy.failed) == 1
        assert not proxy.starts


async def test_a_cut_stream_ends_with_an_error_event(caplog: pytest.LogCaptureFixture) -> None:
    async with Worker.up(plays(EVENTS + chunk(b"data: 1"), chunk(b"23\n\ndata: 4"), close=True)) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy) as port:
            client = Upstream(f"http://127.0.0.1:{port}")
            response = await client.request(b"POST", b"/", [])
            body = await response.read_all(1000)
            assert len(client._idle) == 1
    good, error, end = body.rsplit(b"\n\n", 2)
    assert (good, end) == (b"data: 123\n\ndata: 4", b"")
    assert json.loads(error.removeprefix(b"data: "))["error"]["type"] == "upstream_error"
    assert isinstance(proxy.relayed[0].failure, UpstreamFailed)
    assert not caplog.records


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n1\r\n{\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 9\r\n\r\n{",
    ],
)
async def test_any_other_cut_breaks_the_clients_connection(
    caplog: pytest.LogCaptureFixture, head: bytes
) -> None:
    async with Worker.up(plays(head, close=True)) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy) as port:
            response = await Upstream(f"http://127.0.0.1:{port}").request(b"POST", b"/", [])
            assert await response.read() == b"{"
            with pytest.raises(UpstreamFailed):
                await response.read()
        assert isinstance(proxy.relayed[0].failure, UpstreamFailed)
    assert not any(record.exc_info for record in caplog.records)


# clients


async def hang(peer: Peer) -> None:
    await peer.until_gone()


async def begin(peer: Peer) -> None:
    await peer.send(EVENTS + chunk(event(b"1")), chunk(event(b"2")))
    await peer.until_gone()


async def flood(peer: Peer) -> None:
    await peer.send(EVENTS)
    while True:
        peer.writer.write(chunk(bytes(64 << 10)))
        await peer.writer.drain()


@pytest.mark.parametrize("script", [hang, begin, flood])
@pytest.mark.parametrize("reset", [False, True])
async def test_a_client_that_leaves_takes_its_request_from_the_worker(
    script: Script, caplog: pytest.LogCaptureFixture, *, reset: bool
) -> None:
    async with Worker.up(script) as worker:
        proxy = Proxy(Upstream(worker.url))
        async with served(proxy) as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            writer.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\n{}")
            await until(lambda: worker.requests)
            if script is not hang:
                await reader.readuntil(b"\r\n\r\n")
            if reset:
                writer.transport.abort()
            else:
                writer.close()
            await until(lambda: not worker.open, "the worker's connection closed")
            await until(lambda: proxy.gone == 1)
        assert not proxy.relayed
    assert not caplog.records


async def test_a_slow_client_holds_its_own_worker_back_and_loses_nothing() -> None:
    total = 48 << 20
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.send(EVENTS)
        while sent < total:
            peer.writer.write(chunk(bytes(64 << 10)))
            sent += 64 << 10
            await peer.writer.drain()
        await peer.send(END)

    async with Worker.up(script, plays(answer(b"ok"))) as worker:
        proxy = Proxy(Upstream(worker.url, limits=Limits(buffer_bytes=64 << 10, idle_seconds=0.2)))
        async with served(proxy) as port:
            client = Upstream(f"http://127.0.0.1:{port}", limits=Limits(buffer_bytes=1))
            slow = await client.request(b"POST", b"/slow", [])
            before = -1
            while sent != before:
                before = sent
                await asyncio.sleep(0.25)
            assert sent < total // 2
            other = await client.request(b"POST", b"/other", [])
            assert await other.read_all(10) == b"ok"
            assert len(await slow.read_all(total)) == total
            assert [relayed.failure for relayed in proxy.relayed] == [None, None]


async def test_answers_under_way_together_do_not_mix() -> None:
    async def script(peer: Peer) -> None:
        name = peer.body
        await peer.send(EVENTS)
        for number in range(20):
            await peer.send(chunk(event(b"%b-%d" % (name, number))))
        await peer.send(END)

    async def ask(client: Upstream, name: bytes) -> None:
        for _ in range(3):
            response = await client.request(b"POST", b"/", [], name)
            expected = b"".join(event(b"%b-%d" % (name, number)) for number in range(20))
            assert await response.read_all(1 << 20) == expected

    async with Worker.up(script) as worker, served(Proxy(Upstream(worker.url))) as port:
        client = Upstream(f"http://127.0.0.1:{port}")
        await asyncio.gather(*(ask(client, b"%d" % number) for number in range(40)))
        assert worker.connections <= 40


# the engine's own counts

# of a real vLLM 0.32's /v1/messages, whose /v1/chat/completions counts 117 prompt tokens for the same
_ANTHROPIC = (
    b'{"usage":{"input_tokens":17,"output_tokens":3,'
    b'"cache_creation_input_tokens":4,"cache_read_input_tokens":96}}'
)


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b'{"usage":{"prompt_tokens_details":{"cached_tokens":48}}}'], 48),
        ([b'{"meta_info": {"cached_tokens" : 0}}'], 0),
        ([b'data: {"cached_tokens":1}\n\n', b'data: {"cached_tokens":2}\n\n', b"data: [DONE]\n\n"], 2),
        ([b'data: {"cached_to', b'kens":1', b"6}\n\n", b"data: [DONE]\n\n"], 16),
        ([b'{"text":"\\"cached_tokens\\":7"}'], None),
        ([b'{"prompt_tokens_details":{"cached_tokens":null}}'], None),
        ([b'{"cached_tokens":5}' + bytes(3000)], None),
        ([b'{"usage":{"cached_tokens":5}},"prompt_token_ids":[', b"1000," * 1000, b"1]}"], 5),
        ([b'{"usage":{"input_tokens":21,"cache_read_input_tokens":96}}'], 96),
        ([], None),
    ],
)
def test_the_engines_own_count_is_found_at_the_end(pieces: list[bytes], expected: int | None) -> None:
    assert Relayed(200, pieces).counts()[1] == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b'{"usage":{"prompt_tokens":52,"prompt_tokens_details":{"cached_tokens":48}}}'], 52),
        ([b'data: {"usage":{"prompt_tokens":1}}\n\n', b'data: {"usage":{"prompt_tokens": 2}}\n\n'], 2),
        ([b'{"usage":{"input_tokens":7,"output_tokens":3}}'], 7),
        ([b'{"usage":{"input_tokens":7,"input_tokens_details":{"cached_tokens":4}}}'], 7),
        ([_ANTHROPIC], 117),
        ([b'data: {"usage":{"input_tokens":117,"output_tokens":0}}\n\n', b"data: " + _ANTHROPIC], 117),
        ([b'{"meta_info":{"prompt_tokens":9,"input_token_logprobs":[' + b"-0.25," * 999 + b"0]}}"], 9),
        ([b'{"meta_info":{"prompt_tokens":9}}'], 9),
        ([b'{"text":"\\"prompt_tokens\\":7"}'], None),
        ([b'{"prompt_tokens":null}'], None),
    ],
)
def test_the_engines_count_of_prompt_tokens_is_read_from_the_tail(
    pieces: list[bytes], expected: int | None
) -> None:
    assert Relayed(200, pieces).counts()[0] == expected
