"""What a half's answer means, over real sockets, before anything of it is passed on."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from router.pairs.half import Half, HalfFailed
from router.proxy.upstream import Upstream
from tests.pairs.ranks import a_rank
from tests.proxy.scripted import Peer, Worker, answer, chunk, plays
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.proxy.scripted import Script

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
TOKEN = b'data: {"choices":[{"text":"a","finish_reason":null}]}\n\n'
ABORTED = b'data: {"choices":[{"index":0,"text":"","finish_reason": "abort"}]}\n\n'
NATIVE = b'data: {"text":"","meta_info":{"finish_reason":{"type":"abort"}}}\n\n'
ERROR = b'data: {"error": {"object":"error","message":"KV transfer failed","code":500}}\n\n'
DONE = b"data: [DONE]\n\n"


@asynccontextmanager
async def half(
    *scripts: Script, pin: tuple[tuple[bytes, bytes], ...] = ()
) -> AsyncIterator[tuple[Half, Worker]]:
    async with Worker.up(*scripts) as worker:
        upstream = Upstream(worker.url)
        headers = [(b"x-request-id", b"1")]
        yield Half(a_rank(worker.url), upstream, b"/v1/completions", headers, pin=pin), worker
        await upstream.close()


async def failure(*pieces: bytes) -> HalfFailed:
    async with half(plays(*pieces)) as (one, _):
        with pytest.raises(HalfFailed) as failed:
            await one.ask(b"{}")
        return failed.value


async def test_an_answer_is_handed_over_whole_once_its_first_piece_is_here() -> None:
    async with half(plays(EVENTS, chunk(TOKEN), chunk(DONE), END), pin=((b"x-rank", b"3"),)) as (one, worker):
        response = await one.ask(b'{"a":1}')
        assert await response.read_all(1000) == TOKEN + DONE
        (_, head, body) = worker.requests[0]
        assert b"\r\nx-rank: 3\r\n" in head
        assert b"\r\nx-request-id: 1\r\n" in head
        assert body == b'{"a":1}'


@pytest.mark.parametrize(
    "pieces",
    [
        (ERROR, DONE),
        (ABORTED, ERROR, DONE),
        (ABORTED + ERROR,),
        (NATIVE, ERROR),
        (TOKEN + ERROR,),
        (b"\n" + ERROR,),
    ],
)
async def test_an_error_in_a_stream_that_has_just_begun_is_an_error(pieces: tuple[bytes, ...]) -> None:
    failed = await failure(EVENTS, *map(chunk, pieces), END)
    assert failed.answer is not None
    assert (failed.answer.code, failed.answer.status) == (500, 200)
    assert failed.answer.body == b"".join(pieces)
    assert not failed.final


@pytest.mark.parametrize(
    "pieces", [(ABORTED, DONE), (NATIVE,), (TOKEN, ERROR), (b'data: {"errors": 1}\n\n',)]
)
async def test_what_is_no_error_or_comes_later_is_passed_on(pieces: tuple[bytes, ...]) -> None:
    async with half(plays(EVENTS, *map(chunk, pieces), END)) as (one, _):
        response = await one.ask(b"{}")
        assert await response.read_all(1000) == b"".join(pieces)


@pytest.mark.parametrize(
    ("status", "final", "refused"),
    [(400, True, False), (404, True, False), (429, False, True), (500, False, False), (503, False, True)],
)
async def test_an_error_status_says_whether_another_pair_would_do_better(
    status: int, final: bool, refused: bool
) -> None:
    failed = await failure(answer(b"why", status=b"%d Why" % status))
    assert failed.answer is not None
    assert (failed.answer.status, failed.answer.body) == (status, b"why")
    assert (failed.final, failed.refused, failed.failure.sent) == (final, refused, not refused)


async def test_a_bad_request_told_in_a_stream_is_final() -> None:
    told = b'data: {"error":{"message":"too long","code":"400"}}\n\n'
    assert (await failure(EVENTS, chunk(told), END)).final


async def test_a_connection_that_is_lost_is_no_answer() -> None:
    async with half(plays(b"", close=True)) as (one, _):
        with pytest.raises(HalfFailed) as failed:
            await one.whole(b"{}")
    assert failed.value.answer is None
    assert failed.value.failure.sent


async def test_an_idle_connection_that_had_been_closed_is_made_anew_unseen() -> None:
    async def twice(peer: Peer) -> None:
        await peer.send(answer(b"ok"))
        await peer.next_request()
        peer.abort()

    async with half(twice, plays(answer(b"again"))) as (one, worker):
        assert await one.whole(b"{}") == b"ok"
        assert await one.whole(b"{}") == b"again"
        assert worker.connections == 2


async def test_a_half_that_is_cancelled_ends_at_its_worker() -> None:
    gone = asyncio.Event()

    async def hangs(peer: Peer) -> None:
        await peer.send(EVENTS, chunk(ABORTED))
        await peer.until_gone()
        gone.set()

    async with half(hangs) as (one, worker):
        task = asyncio.create_task(one.ask(b"{}"))
        await until(lambda: worker.requests)
        task.cancel()
        await gone.wait()
