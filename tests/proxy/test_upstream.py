from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import BadRequest, UpstreamFailed, UpstreamTimeout
from router.proxy.drive import Drive, in_task
from router.proxy.fetch import fetch
from router.proxy.limits import Limits
from router.proxy.route_limits import RouteLimits
from router.proxy.upstream import Upstream
from tests.proxy.scripted import OK, Peer, Worker, answer, plays
from tests.waiting import DEADLINE_SECONDS, until

if TYPE_CHECKING:
    from router.proxy.response import Response

TLS = Path(__file__).parents[1] / "fixtures" / "tls"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


async def get(upstream: Upstream, method: bytes = b"GET", body: bytes = b"") -> tuple[int, bytes]:
    response = await upstream.request(method, b"/", [], body)
    try:
        return response.status, await response.read_all(1 << 20)
    finally:
        response.close()


async def cut(response: Response) -> bytes:
    """Read until the cut and return what came before it."""
    pieces = b""
    try:
        while piece := await response.read():
            pieces += piece
    except UpstreamFailed:
        return pieces
    raise AssertionError("the answer was not cut")


# what is written


async def test_a_request_is_written_as_it_was_given() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url + "/base")
        response = await upstream.request(b"POST", b"/v1?x=1", [(b"a", b"b")], b"body")
        assert await response.read_all(10) == b"ok"
        authority = worker.url.removeprefix("http://").encode()
        head = b"POST /base/v1?x=1 HTTP/1.1\r\nhost: %b\r\ncontent-length: 4\r\na: b\r\n\r\n" % authority
        assert worker.requests == [(1, head, b"body")]
        await upstream.close()


async def test_a_large_body_arrives_whole() -> None:
    body = bytes(range(256)) * 16384
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url)
        assert await get(upstream, b"POST", body) == (200, b"ok")
        assert worker.requests[0][2] == body
        await upstream.close()


async def test_what_would_split_the_request_is_never_sent() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url)
        with pytest.raises(BadRequest):
            await upstream.request(b"GET", b"/", [(b"a", b"b\r\nx: y")])
        assert worker.connections == 0


async def test_small_pieces_are_not_kept_waiting_by_the_kernel() -> None:
    async with Worker.up(OK) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        connection = response._connection._transport.get_extra_info("socket")
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


# what ends an answer


FRAMINGS = {
    "length": (answer(b"hello world"), False, 1),
    "chunked": (CHUNKED + b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n", False, 1),
    "chunk extensions": (CHUNKED + b"b;a=b\r\nhello world\r\n0;c\r\n\r\n", False, 1),
    "trailers": (CHUNKED + b"b\r\nhello world\r\n0\r\nx-trailer: 1\r\n\r\n", False, 1),
    "close": (b"HTTP/1.1 200 OK\r\n\r\nhello world", True, 2),
    "1.0": (b"HTTP/1.0 200 OK\r\n\r\nhello world", True, 2),
    "1.0 with length": (b"HTTP/1.0 200 OK\r\ncontent-length: 11\r\n\r\nhello world", False, 2),
    "connection: close": (answer(b"hello world", b"connection: close"), False, 2),
    "100": (b"HTTP/1.1 100 Continue\r\n\r\n" + answer(b"hello world"), False, 1),
    "several 1xx": (
        b"HTTP/1.1 102 Processing\r\nx-early: 1\r\n\r\nHTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"
        + answer(b"hello world"),
        False,
        1,
    ),
}


@pytest.mark.parametrize("name", FRAMINGS)
@pytest.mark.parametrize("step", [1, 7, 10_000])
async def test_every_framing_is_understood_and_decides_on_reuse(name: str, step: int) -> None:
    data, close, connections = FRAMINGS[name]
    pieces = [data[start : start + step] for start in range(0, len(data), step)]
    async with Worker.up(plays(*pieces, close=close)) as worker:
        upstream = Upstream(worker.url)
        for _ in range(2):
            response = await upstream.request(b"GET", b"/", [])
            assert response.status == 200
            assert await response.read_all(100) == b"hello world"
            assert response.complete
            assert not {b"x-trailer", b"x-early", b"link"} & {name for name, _ in response.headers}
            response.close()
        assert worker.connections == connections
        await upstream.close()


@given(
    body=st.lists(st.binary(min_size=1, max_size=60), max_size=6),
    cuts=st.sets(st.integers(1, 400), max_size=12),
    framing=st.sampled_from(["length", "chunked", "close"]),
    informational=st.booleans(),
)
@settings(max_examples=60)
def test_an_answer_is_the_same_however_its_bytes_are_split(
    body: list[bytes], cuts: set[int], framing: str, *, informational: bool
) -> None:
    data = b"HTTP/1.1 100 Continue\r\n\r\n" if informational else b""
    if framing == "length":
        data += answer(b"".join(body), b"X-Name: Value")
    elif framing == "chunked":
        data += CHUNKED + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in body) + b"0\r\n\r\n"
    else:
        data += b"HTTP/1.1 200 OK\r\n\r\n" + b"".join(body)
    edges = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]

    async def example() -> None:
        async with Worker.up(plays(*pieces, close=framing == "close")) as worker:
            upstream = Upstream(worker.url)
            assert await get(upstream) == (200, b"".join(body))
            await upstream.close()

    asyncio.run(example())


async def test_a_head_request_has_no_body_whatever_its_length_says() -> None:
    async with Worker.up(plays(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"), OK) as worker:
        upstream = Upstream(worker.url)
        assert await get(upstream, b"HEAD") == (200, b"")
        assert await get(upstream) == (200, b"ok")
        await upstream.close()


@pytest.mark.parametrize("status", [204, 304])
async def test_answers_without_a_body_keep_the_connection(status: int) -> None:
    async with Worker.up(plays(b"HTTP/1.1 %d X\r\netag: a\r\n\r\n" % status), OK) as worker:
        upstream = Upstream(worker.url)
        assert await get(upstream) == (status, b"")
        assert await get(upstream) == (200, b"ok")
        assert worker.connections == 1
        await upstream.close()


async def test_headers_come_in_lower_case_in_order_and_repeated() -> None:
    data = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a\r\nX-B: C\r\nSet-Cookie: d\r\n\r\n"
    async with Worker.up(plays(data)) as worker:
        upstream = Upstream(worker.url)
        response = await upstream.request(b"GET", b"/", [])
        assert response.headers == [
            (b"content-length", b"0"),
            (b"set-cookie", b"a"),
            (b"x-b", b"C"),
            (b"set-cookie", b"d"),
        ]
        await upstream.close()


async def test_pieces_that_have_come_are_handed_out_as_one() -> None:
    pieces = [b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (b"a", b"bc", b"def")]
    async with Worker.up(plays(CHUNKED, b"".join(pieces), b"0\r\n\r\n")) as worker:
        upstream = Upstream(worker.url)
        response = await upstream.request(b"GET", b"/", [])
        assert not response.complete
        assert await response.read() == b"abcdef"
        assert await response.read() == b""
        assert response.complete
        await upstream.close()


# what goes wrong


async def test_a_refused_connection_is_a_failure() -> None:
    async with Worker.up(OK) as worker:
        url = worker.url
    with pytest.raises(UpstreamFailed):
        await get(Upstream(url))


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nx",
    ],
)
async def test_what_is_not_http_is_a_failure_and_is_not_tried_again(data: bytes) -> None:
    async with Worker.up(OK, plays(data)) as worker:
        upstream = Upstream(worker.url)
        assert await get(upstream) == (200, b"ok")
        with pytest.raises(UpstreamFailed):
            await get(upstream)
        assert len(worker.requests) == 2
        await until(lambda: not worker.open)


async def test_a_bad_chunk_cuts_the_answer_after_what_was_good() -> None:
    async with Worker.up(plays(CHUNKED + b"2\r\nab\r\n", b"zz\r\n")) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        assert await cut(response) == b"ab"


@pytest.mark.parametrize(
    "head", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab", CHUNKED + b"2\r\nab\r\n"]
)
@pytest.mark.parametrize("reset", [False, True])
async def test_a_cut_is_a_failure_after_what_came_before_it(head: bytes, *, reset: bool) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(head)
        if reset:
            peer.abort()
        else:
            peer.close()

    async with Worker.up(script) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        assert await cut(response) == b"ab"
        assert not response.complete
        response.close()


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\ncontent-"])
async def test_a_connection_closed_before_the_answer_is_a_failure(start: bytes) -> None:
    async with Worker.up(plays(start, close=True)) as worker:
        with pytest.raises(UpstreamFailed):
            await get(Upstream(worker.url))
        assert worker.connections == 1


async def test_a_head_without_end_is_a_failure() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\n")
        while True:
            await peer.send(b"x-more: " + b"x" * 1000 + b"\r\n")

    async with Worker.up(script) as worker:
        with pytest.raises(UpstreamFailed, match="too large"):
            await get(Upstream(worker.url))


@pytest.mark.parametrize("start", [b"0\r\nx: ", b"0\r\n", b"2;"])
@pytest.mark.parametrize("before", [b"", b"2\r\nok\r\n"])
async def test_a_body_that_is_all_framing_is_a_failure(start: bytes, before: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED + before + start)
        while True:
            await peer.send(b"a: b\r\n" * 1000 if start == b"0\r\n" else b"a" * 5000)

    async with Worker.up(script) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        if before:
            assert await response.read() == b"ok"
        with pytest.raises(UpstreamFailed, match="too large"):
            await response.read()


async def test_framing_is_not_counted_over_a_whole_stream() -> None:
    piece = b"1;%b\r\n" % (b"x" * 5000)

    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED, *([piece, b"a\r\n"] * 40), b"0\r\n\r\n")

    async with Worker.up(script) as worker:
        assert await get(Upstream(worker.url)) == (200, b"a" * 40)


@pytest.mark.parametrize("status", [b"600", b"999", b"099", b"000"])
async def test_a_status_that_is_none_is_a_failure(status: bytes) -> None:
    async with Worker.up(plays(answer(b"ok", status=status + b" Odd"))) as worker:
        with pytest.raises(UpstreamFailed):
            await get(Upstream(worker.url))


async def test_closing_ends_answers_under_way() -> None:
    async with Worker.up(plays(CHUNKED + b"1\r\na\r\n"), hang) as worker:
        upstream = Upstream(worker.url)
        response = await upstream.request(b"GET", b"/", [])
        assert await response.read() == b"a"
        waiting = asyncio.create_task(get(upstream))
        await until(lambda: len(worker.requests) == 2)
        await upstream.close()
        with pytest.raises(UpstreamFailed, match="closed"):
            await response.read()
        with pytest.raises(UpstreamFailed, match="closed"):
            await waiting
        with pytest.raises(UpstreamFailed, match="closed"):
            await get(upstream)
        await until(lambda: not worker.open)


async def test_an_answer_over_the_limit_is_cancelled() -> None:
    async with Worker.up(plays(CHUNKED + b"5\r\nhello\r\n")) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        with pytest.raises(UpstreamFailed, match="larger"):
            await response.read_all(4)
        await until(lambda: not worker.open)


# time


async def hang(peer: Peer) -> None:
    await peer.until_gone()


async def test_a_silent_worker_runs_into_the_first_byte_limit() -> None:
    async with Worker.up(OK, hang) as worker:
        upstream = Upstream(worker.url, limits=Limits(first_byte_seconds=0.02))
        assert await get(upstream) == (200, b"ok")
        with pytest.raises(UpstreamTimeout):
            await get(upstream)
        assert len(worker.requests) == 2
        await until(lambda: not worker.open)


async def test_a_head_is_not_a_first_byte() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED)
        await peer.until_gone()

    async with Worker.up(script) as worker:
        upstream = Upstream(worker.url, limits=Limits(first_byte_seconds=0.05))
        response = await upstream.request(b"GET", b"/", [])
        with pytest.raises(UpstreamTimeout):
            await response.read()
        await until(lambda: not worker.open)


async def test_a_worker_that_stops_midway_runs_into_the_idle_limit() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED, b"1\r\na\r\n", b"1\r\nb\r\n")
        await peer.until_gone()

    async with Worker.up(script) as worker:
        upstream = Upstream(worker.url, limits=Limits(idle_seconds=0.05))
        response = await upstream.request(b"GET", b"/", [])
        assert await cut(response) == b"ab"
        assert isinstance(response.failure, UpstreamTimeout)
        await until(lambda: not worker.open)


async def test_a_slow_reader_is_not_an_idle_worker() -> None:
    release = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED + b"1\r\na\r\n")
        await release.wait()
        await peer.send(b"1\r\nb\r\n0\r\n\r\n")

    async with Worker.up(script) as worker:
        upstream = Upstream(worker.url, limits=Limits(idle_seconds=0.2))
        response = await upstream.request(b"GET", b"/", [])
        assert await response.read() == b"a"
        started = asyncio.get_running_loop().time()
        await until(lambda: asyncio.get_running_loop().time() > started + 0.5)
        release.set()
        assert await response.read() == b"b"
        response.close()
        await upstream.close()


async def test_connecting_has_a_limit() -> None:
    server = await asyncio.start_server(lambda _, __: None, "127.0.0.1", 0, backlog=1)
    context = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
    port = server.sockets[0].getsockname()[1]  # it accepts, but never says a word of TLS
    upstream = Upstream(f"https://127.0.0.1:{port}", limits=Limits(connect_seconds=0.05), tls=context)
    with pytest.raises(UpstreamTimeout):
        await get(upstream)
    server.close()


# the pool


async def test_the_latest_connection_is_reused_first() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url)
        await asyncio.gather(*(get(upstream) for _ in range(3)))
        assert worker.connections == 3
        last = worker.requests[-1][0]
        for _ in range(3):
            await get(upstream)
        used = {number for number, _, _ in worker.requests[-3:]}
        assert len(used) == 1
        assert used <= {1, 2, 3}
        assert last in {1, 2, 3}
        assert worker.connections == 3
        await upstream.close()


async def test_bytes_after_the_answer_make_the_connection_unusable() -> None:
    for surplus in (answer(b"evil"), b"x", b"HTTP/1.1 200"):
        async with Worker.up(plays(answer(b"one") + surplus), OK) as worker:
            upstream = Upstream(worker.url)
            assert await get(upstream) == (200, b"one")
            assert await get(upstream) == (200, b"ok")
            assert worker.connections == 2
            await upstream.close()


async def test_bytes_on_an_idle_connection_make_it_unusable() -> None:
    async with Worker.up(plays(answer(b"one"), answer(b"evil")), OK) as worker:
        upstream = Upstream(worker.url)
        assert await get(upstream) == (200, b"one")
        await until(lambda: not worker.open)
        assert await get(upstream) == (200, b"ok")
        assert worker.connections == 2
        await upstream.close()


async def test_an_idle_connection_that_the_worker_closes_is_dropped() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url)
        await get(upstream)
        worker.drop()
        await until(lambda: not len(upstream._idle))
        await get(upstream)
        assert [number for number, _, _ in worker.requests] == [1, 2]
        await upstream.close()


async def lost(upstream: Upstream) -> UpstreamFailed:
    with pytest.raises(UpstreamFailed) as caught:
        await get(upstream)
    return caught.value


async def test_a_request_is_written_once() -> None:
    async with Worker.up(OK, plays(close=True)) as worker:
        upstream = Upstream(worker.url)
        await get(upstream)
        assert (await lost(upstream)).sent
        assert len(worker.requests) == 2


async def test_an_idle_connection_lost_at_once_is_told_from_a_request_that_was_lost() -> None:
    patient, strict = Limits(stale_seconds=60), Limits(stale_seconds=0)
    begun = plays(b"HTTP/1.1", close=True)
    for limits, script, stale in ((patient, plays(close=True), True), (strict, plays(close=True), False)):
        async with Worker.up(OK, script, OK) as worker:
            upstream = Upstream(worker.url, limits=limits)
            await get(upstream)
            assert (await lost(upstream)).stale is stale
            assert (await get(upstream))[0] == 200
    for scripts in ((plays(close=True),), (OK, begun)):
        async with Worker.up(*scripts) as worker:
            upstream = Upstream(worker.url, limits=patient)
            if len(scripts) > 1:
                await get(upstream)
            assert not (await lost(upstream)).stale  # on a new connection, or after the first byte


async def test_a_fresh_connection_can_be_asked_for() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url)
        await get(upstream)
        response = await upstream.request(b"GET", b"/", [], fresh=True)
        response.close()
        assert [number for number, _, _ in worker.requests] == [1, 2]
        await upstream.close()


async def test_what_was_not_sent_is_told() -> None:
    async with Worker.up(OK) as worker:
        url = worker.url
    assert not (await lost(Upstream(url))).sent


async def test_a_request_of_which_an_answer_had_begun_is_not_sent_again() -> None:
    async with Worker.up(OK, plays(b"HTTP/1.1", close=True)) as worker:
        upstream = Upstream(worker.url)
        await get(upstream)
        with pytest.raises(UpstreamFailed):
            await get(upstream)
        assert len(worker.requests) == 2


async def test_an_old_idle_connection_is_closed_not_reused() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url, limits=Limits(keepalive_seconds=0.05))
        await asyncio.gather(*(get(upstream) for _ in range(3)))
        await until(lambda: not worker.open, "every idle connection closed by its age")
        await get(upstream)
        assert worker.connections == 4
        await upstream.close()


async def test_no_more_idle_connections_are_kept_than_allowed() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url, limits=Limits(max_idle_connections=2))
        await asyncio.gather(*(get(upstream) for _ in range(5)))
        await until(lambda: worker.open == 2)
        await upstream.close()
        await until(lambda: worker.open == 0)


async def test_an_early_answer_ends_the_request_and_the_connection() -> None:
    early = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer(b"no", status=b"413 Too Large"))
        await early.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    upstream = Upstream(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    assert await get(upstream, b"POST", bytes(32 << 20)) == (413, b"no")
    assert not len(upstream._idle)
    early.set()
    server.close()


# cancelling and holding back


async def test_closing_an_unfinished_answer_cancels_it_at_the_worker() -> None:
    peers: list[Peer] = []

    async def script(peer: Peer) -> None:
        peers.append(peer)
        await peer.send(CHUNKED + b"1\r\na\r\n")
        await peer.until_gone()

    async with Worker.up(script) as worker:
        response = await Upstream(worker.url).request(b"GET", b"/", [])
        assert await response.read() == b"a"
        response.close()
        response.close()
        await peers[0].gone.wait()
        with pytest.raises(UpstreamFailed):
            await response.read()


async def test_cancelling_a_request_that_waits_cancels_it_at_the_worker() -> None:
    peers: list[Peer] = []

    async def script(peer: Peer) -> None:
        peers.append(peer)
        await peer.until_gone()

    async with Worker.up(script) as worker:
        task = asyncio.create_task(get(Upstream(worker.url)))
        await until(lambda: peers)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await peers[0].gone.wait()


async def test_a_slow_reader_holds_its_worker_back() -> None:
    sent = 0
    total = 64 << 20

    async def script(peer: Peer) -> None:
        nonlocal sent
        peer.writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % total)
        while sent < total:
            peer.writer.write(bytes(64 << 10))
            sent += 64 << 10
            await peer.writer.drain()

    async with Worker.up(script) as worker:
        limits = Limits(buffer_bytes=128 << 10)
        response = await Upstream(worker.url, limits=limits).request(b"GET", b"/", [])
        received = len(await response.read())
        before = -1
        while sent != before:  # until the worker gets nothing more away
            before = sent
            await asyncio.sleep(0.05)
        assert sent < total // 2
        assert sum(map(len, response.pieces)) <= (128 << 10) + (256 << 10)
        while piece := await response.read():
            received += len(piece)
            assert len(piece) < 1 << 20
        assert received == sent == total
        response.close()


# other transports


async def test_https_is_verified() -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    async with Worker.up(OK, tls=context) as worker:
        trusted = ssl.create_default_context(cafile=str(TLS / "localhost.pem"))
        upstream = Upstream(worker.url, tls=trusted)
        assert await get(upstream) == (200, b"ok")
        assert await get(upstream) == (200, b"ok")
        assert worker.connections == 1
        await upstream.close()
        with pytest.raises(UpstreamFailed):
            await get(Upstream(worker.url))


async def test_an_ipv6_literal_can_be_reached() -> None:
    async with Worker.up(OK, host="::1") as worker:
        upstream = Upstream(worker.url)
        assert await get(upstream) == (200, b"ok")
        assert b"host: [::1]:" in worker.requests[0][1]
        await upstream.close()


async def test_the_workers_own_key_goes_with_everything_it_is_asked() -> None:
    async with Worker.up(OK) as worker:
        upstream = Upstream(worker.url, key="sk-of-the-worker")
        await (await upstream.request(b"POST", b"/v1", [(b"accept", b"*/*")], b"{}")).read_all(100)
        await fetch(upstream, "GET", "/health", timeout=DEADLINE_SECONDS)
        await upstream.close()
        for _, head, _ in worker.requests:
            assert head.count(b"\r\nauthorization: Bearer sk-of-the-worker\r\n") == 1


async def test_limits_of_a_route_hold_on_its_path_only() -> None:
    limits = Limits().with_routes([RouteLimits("/short", first_byte=0.05)])
    async with Worker.up(hang) as worker:
        upstream = Upstream(worker.url, limits=limits)
        longer = asyncio.create_task(upstream.request(b"POST", b"/long", []))
        with pytest.raises(UpstreamTimeout):
            await upstream.request(b"POST", b"/short?a=b", [])
        assert not longer.done()
        longer.cancel()
        await asyncio.gather(longer, return_exceptions=True)
        await upstream.close()


async def test_a_request_cut_by_a_close_goes_on_by_itself_and_not_as_part_of_who_closed() -> None:
    loop, running, late = asyncio.get_running_loop(), set[object](), []

    async def with_another_try(upstream: Upstream) -> None:
        with pytest.raises(UpstreamFailed):
            await upstream.request(b"GET", b"/", [])
        await in_task()
        try:
            async with asyncio.timeout(0.01):
                await loop.create_future()
        except TimeoutError:
            late.append("in time")

    async with Worker.up(OK, Peer.until_gone) as worker:
        upstream = Upstream(worker.url)
        await get(upstream)  # who finds a connection needs no Task
        Drive(with_another_try(upstream), loop, running).start()
        await until(lambda: len(worker.requests) == 2)
        await upstream.close()
        await until(lambda: not running, "the end of what had been cut")
    assert late == ["in time"]
