"""What a relay asks of `send`, whoever's it is."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from router.proxy.relay import Relayed, relay
from router.proxy.upstream import Upstream
from tests.proxy.scripted import Peer, Worker, plays
from tests.waiting import until

if TYPE_CHECKING:
    from router.proxy.asgi import Message

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PIECES = [b"2\r\n%02d\r\n" % number for number in range(30)]
BODY = b"".join(b"%02d" % number for number in range(30))


@pytest.mark.parametrize("turns", [0, 1, 3])
async def test_a_send_that_takes_its_time_loses_nothing(turns: int) -> None:
    messages: list[Message] = []

    async def send(message: Message) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
        messages.append(message)

    async with Worker.up(plays(HEAD, *PIECES, b"0\r\n\r\n")) as worker:
        upstream = Upstream(worker.url)
        await relay(await upstream.request(b"GET", b"/", []), send)
        start, *rest = messages
        assert start == {"type": "http.response.start", "status": 200, "headers": []}
        assert b"".join(message["body"] for message in rest) == BODY
        assert [message["more_body"] for message in rest] == [True] * (len(rest) - 1) + [False]
        assert len(upstream._idle) == 1
        await upstream.close()


@pytest.mark.parametrize("turns", [0, 1])
async def test_what_send_raises_comes_out_of_the_relay_and_cancels_the_worker(turns: int) -> None:
    sent = 0

    async def send(message: Message) -> None:
        nonlocal sent
        assert message
        for _ in range(turns):
            await asyncio.sleep(0)
        sent += 1
        if sent == 5:
            raise OSError("gone")

    async with Worker.up(plays(HEAD, *PIECES)) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        with pytest.raises(OSError, match="gone"):
            await relay(response, send)
        assert sent == 5
        await until(lambda: not worker.open)


async def test_a_relay_cancelled_in_a_slow_send_cancels_the_worker() -> None:
    stuck = asyncio.Event()
    ended = asyncio.Event()

    async def send(message: Message) -> None:
        if message.get("body", b"00") != b"00":
            stuck.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    async def script(peer: Peer) -> None:
        await peer.send(HEAD, *PIECES)
        await peer.until_gone()

    async with Worker.up(script) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        task = asyncio.create_task(relay(response, send))
        await stuck.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert ended.is_set()
        await until(lambda: not worker.open)


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
        ([], None),
    ],
)
def test_the_engines_own_count_is_found_at_the_end(pieces: list[bytes], expected: int | None) -> None:
    assert Relayed(200, pieces).cached_tokens == expected


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ([b'{"usage":{"prompt_tokens":52,"prompt_tokens_details":{"cached_tokens":48}}}'], 52),
        ([b'data: {"usage":{"prompt_tokens":1}}\n\n', b'data: {"usage":{"prompt_tokens": 2}}\n\n'], 2),
        ([b'{"usage":{"input_tokens":7,"output_tokens":3}}'], 7),
        ([b'{"meta_info":{"prompt_tokens":9}}'], 9),
        ([b'{"text":"\\"prompt_tokens\\":7"}'], None),
        ([b'{"prompt_tokens":null}'], None),
    ],
)
def test_the_engines_count_of_prompt_tokens_is_read_from_the_tail(
    pieces: list[bytes], expected: int | None
) -> None:
    assert Relayed(200, pieces).prompt_tokens == expected
