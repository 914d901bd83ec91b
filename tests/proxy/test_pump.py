"""Streams that go on framed as they come, and those that must not, over real sockets."""

from __future__ import annotations

import asyncio
import re
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from router.proxy.limits import Limits
from router.proxy.pump import Pump
from router.proxy.upstream import Upstream
from tests.proxy.scripted import Peer, Worker, answer, chunk, plays
from tests.proxy.serving import Proxy, served
from tests.waiting import DEADLINE_SECONDS

if TYPE_CHECKING:
    from router.proxy.response import Response

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
ASK = b"GET / HTTP/1.1\r\nhost: a\r\n\r\n"
CHUNK = re.compile(rb"([0-9a-fA-F]+)\r\n")


def unframed(wire: bytes) -> list[bytes]:
    """Return the chunks of a body; strict: no extensions, nothing behind its end."""
    chunks = []
    while wire != END:
        head = CHUNK.match(wire)
        assert head, wire
        start, size = head.end(), int(head[1], 16)
        assert wire[start + size : start + size + 2] == b"\r\n", wire
        chunks.append(wire[start : start + size])
        wire = wire[start + size + 2 :]
    return chunks


async def heard(port: int, ask: bytes = ASK) -> bytes:
    """Return a chunked answer's body as it comes over the wire."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(ask)
        head = await reader.readuntil(b"\r\n\r\n")
        wire = await (_chunks(reader) if b"transfer-encoding: chunked" in head else reader.read())
        writer.close()
        return wire


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    """Return a body of chunks, whatever is in them."""
    wire, size = b"", -1
    while size:
        line = await reader.readuntil(b"\r\n")
        size = int(line.partition(b";")[0], 16)
        wire += line + await reader.readexactly(size + len(b"\r\n"))
    return wire


@pytest.fixture
def as_they_are(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Collect the reads that a pump has passed on unparsed."""
    passed: list[bytes] = []
    chunk_of = Pump.chunk

    def noted(pump: Pump, read: bytes) -> bool:
        whole = chunk_of(pump, read)
        passed.extend([read] * whole)
        return whole

    monkeypatch.setattr(Pump, "chunk", noted)
    return passed


async def test_whole_chunks_go_on_as_they_are(as_they_are: list[bytes]) -> None:
    chunks = [
        chunk(b"data: %d\n\n" % number * number, form) for number in (1, 7, 99) for form in (b"%x", b"%X")
    ]
    async with (
        Worker.up(plays(HEAD + chunk(b"first"), *chunks, END)) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        assert await heard(port) == b"".join([chunk(b"first"), *chunks, END])
    assert as_they_are == chunks


@pytest.mark.parametrize("texts", [(b"he", b"llo"), (b"data: 1\n\n" * 99, b"x", b"\r\n3\r\n")])
async def test_several_whole_chunks_in_a_read_go_on_as_they_are(
    texts: tuple[bytes, ...], as_they_are: list[bytes]
) -> None:
    read = b"".join(map(chunk, texts))
    async with (
        Worker.up(plays(HEAD + chunk(b"first"), read, END)) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        assert await heard(port) == chunk(b"first") + read + END
    assert as_they_are == [read]


@pytest.mark.parametrize(
    "reads",
    [
        [b"0005\r\nhello\r\n"],
        [b"5;a=b\r\nhello\r\n"],
        [b"5;a=\r\nhello\r\n"],
        [b"5\r\nhe", b"llo\r\n"],
        [b"5\r", b"\nhello\r\n"],
        [b"5", b"\r\nhello\r\n"],
        [b"5\r\nhello", b"\r\n"],
        [b"5\r\nhello\r", b"\n"],
        [b"2\r\nhe\r\n03\r\nllo\r\n"],
        [b"2\r\nhe\r\n3;a=b\r\nllo\r\n"],
        [b"2\r\nhe\r\n3", b"\r\nllo\r\n"],
        [b"2\r\nhe\r\n3\r\nl", b"lo\r\n"],
        [b"2\r\nhe\r\n3\r\nllo\r", b"\n"],
    ],
    ids=str,
)
async def test_what_is_not_whole_chunks_is_framed_anew(reads: list[bytes], as_they_are: list[bytes]) -> None:
    async with (
        Worker.up(plays(HEAD + chunk(b"first"), *reads, chunk(b"again"), chunk(b"last"), END)) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        assert b"".join(unframed(await heard(port))) == b"firsthelloagainlast"
    assert as_they_are[-1:] == [chunk(b"last")]
    assert set(as_they_are) <= {chunk(b"again"), chunk(b"last")}


@pytest.mark.parametrize(
    "read",
    [
        b"0x5\r\nhello\r\n",
        b"+5\r\nhello\r\n",
        b"-5\r\nhello\r\n",
        b" 5\r\nhello\r\n",
        b"5\nhello\r\n",
        b"5_0\r\nhello\r\n",
        b"6\r\nhello\r\n\r\n",
        b"4\r\nhello\r\n",
        b"5\r\nhello\n\r",
        b"\r\nhello\r\n",
        b"ffffffffffffffffff\r\nhello\r\n",
        b"2\r\nhe\r\n4\r\nllo\r\n\r\n",
        b"2\r\nhe\r\n2\r\nllo\r\n",
    ],
    ids=str,
)
async def test_what_is_no_chunk_ends_the_answer_with_an_error(read: bytes) -> None:
    async with (
        Worker.up(plays(HEAD + chunk(b"first"), read, END, close=True)) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        chunks = unframed(await heard(port))
    assert chunks[0] == b"first"
    assert b'"error"' in chunks[-1]


async def test_a_body_of_another_framing_that_looks_like_a_chunk_is_passed_on_whole(
    as_they_are: list[bytes],
) -> None:
    looks = chunk(b"hello")
    sized = answer(b"first" + looks * 2)
    until_end = b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n"
    async with (
        Worker.up(
            plays(HEAD, looks, END),
            plays(sized[: -2 * len(looks)], looks, looks),
            plays(until_end + b"first", looks, looks, close=True),
        ) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        client = Upstream(f"http://127.0.0.1:{port}")
        bodies = [await _body(await client.request(b"GET", b"/", [])) for _ in range(3)]
        assert bodies == [b"hello", b"first" + looks * 2, b"first" + looks * 2]
    assert not as_they_are


async def _body(response: Response) -> bytes:
    return await response.read_all(1 << 20)


async def test_a_client_that_knows_no_chunks_gets_none(as_they_are: list[bytes]) -> None:
    async with (
        Worker.up(plays(HEAD + chunk(b"first"), chunk(b"second"), END)) as worker,
        served(Proxy(Upstream(worker.url))) as port,
    ):
        assert await heard(port, b"GET / HTTP/1.0\r\nhost: a\r\n\r\n") == b"firstsecond"
    assert not as_they_are


async def test_times_are_kept_between_chunks(as_they_are: list[bytes]) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(HEAD + chunk(b"first"), chunk(b"second"))
        await peer.until_gone()

    limits = Limits(idle_seconds=0.05)
    async with Worker.up(script) as worker, served(Proxy(Upstream(worker.url, limits=limits))) as port:
        assert b'"error"' in unframed(await heard(port))[-1]
    assert not as_they_are


async def test_framing_in_small_pieces_is_not_counted_over_a_long_stream() -> None:
    # Each of these has two bytes that are no body, in a read of their own, before a chunk that is not parsed.
    reads = [b"1\r\na", b"\r\n", b"1\r\nb\r\n"] * 40
    async with (
        Worker.up(plays(HEAD + chunk(b"first"), *reads, END)) as worker,
        served(Proxy(Upstream(worker.url, limits=Limits(head_bytes=64)))) as port,
    ):
        assert b"".join(unframed(await heard(port))) == b"first" + b"ab" * 40


@given(
    body=st.lists(
        st.tuples(st.binary(min_size=1, max_size=60), st.sampled_from([b"%x", b"%X", b"%04x", b"%x;a=b"])),
        max_size=8,
    ),
    cuts=st.sets(st.integers(1, 500), max_size=12),
    whole=st.booleans(),
)
@example(body=[(b"\r\n0\r\n\r\n", b"%x")], cuts=set(), whole=True)
@settings(max_examples=60)
def test_a_stream_is_the_same_however_it_is_framed_and_split(
    body: list[tuple[bytes, bytes]], cuts: set[int], *, whole: bool
) -> None:
    framed = [chunk(data, form) for data, form in body]
    wire = HEAD + b"".join(framed) + END
    edges = sorted({0, len(HEAD), *(cut for cut in cuts if cut < len(wire)), len(wire)})
    reads = [wire[start:stop] for start, stop in pairwise(edges)]

    async def work() -> None:
        script = plays(HEAD, *framed, END) if whole else plays(*reads)
        async with Worker.up(script) as worker, served(Proxy(Upstream(worker.url))) as port:
            assert b"".join(unframed(await heard(port))) == b"".join(data for data, _ in body)

    asyncio.run(work())
