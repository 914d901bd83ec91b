from __future__ import annotations

import pytest

from router.errors import UpstreamFailed, UpstreamTimeout
from router.proxy.fetch import fetch
from router.proxy.limits import Limits
from router.proxy.upstream import Upstream
from tests.proxy.scripted import Peer, Worker, answer, plays


async def test_a_question_is_answered_whole() -> None:
    async with Worker.up(plays(answer(b'{"a": [1]}', status=b"404 Not Found"))) as worker:
        upstream = Upstream(worker.url)
        reply = await fetch(upstream, "POST", "/ask?a=b", headers=[(b"x", b"y")], json={"q": 1}, timeout=5)
        assert (reply.status, reply.json()) == (404, {"a": [1]})
        _, head, body = worker.requests[0]
        assert head.startswith(b"POST /ask?a=b HTTP/1.1\r\n")
        assert b"x: y\r\ncontent-type: application/json\r\n" in head
        assert body == b'{"q":1}'
        await upstream.close()


@pytest.mark.parametrize("body", [b"\xff# HELP", b"[" * 9000], ids=["text", "too deep"])
async def test_an_answer_that_is_not_json_is_a_failure_only_when_it_should_be(body: bytes) -> None:
    async with Worker.up(plays(answer(body))) as worker:
        upstream = Upstream(worker.url)
        reply = await fetch(upstream, "GET", "/metrics", timeout=5)
        assert reply.body == body
        with pytest.raises(UpstreamFailed, match="not JSON"):
            reply.json()
        await upstream.close()


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nab"])
async def test_the_limit_covers_the_whole_answer(start: bytes) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(start)
        await peer.until_gone()

    async with Worker.up(script) as worker:
        with pytest.raises(UpstreamTimeout, match=r"/health within 0\.05 s"):
            await fetch(Upstream(worker.url), "GET", "/health", timeout=0.05)


@pytest.mark.parametrize(("stale_seconds", "times"), [(60, 2), (0, 1)])
async def test_a_question_to_a_connection_that_was_closed_is_asked_once_more(
    stale_seconds: float, times: int
) -> None:
    async with Worker.up(plays(answer(b"one")), plays(close=True)) as worker:
        upstream = Upstream(worker.url, limits=Limits(stale_seconds=stale_seconds))
        await fetch(upstream, "GET", "/1", timeout=5)
        with pytest.raises(UpstreamFailed):
            await fetch(upstream, "POST", "/2", timeout=5)
        assert [head.split()[1] for _, head, _ in worker.requests] == [b"/1"] + [b"/2"] * times
