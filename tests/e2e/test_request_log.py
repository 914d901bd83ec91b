"""The request log of a real router: who gets a line, and what it says."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.e2e.pairs import SLOW, body, pairs
from tests.e2e.processes import Running, fleet, joined, router
from tests.e2e.scripted import engine_up
from tests.waiting import until

if TYPE_CHECKING:
    from tests.proxy.scripted import Peer, Script

PROMPT = [index % 250 + 1 for index in range(64)]
EVENTS = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    b"9\r\ndata: 1\n\n\r\n"
)
NOBODYS = "other\nINFO \x1b[31m" + "x" * 300
BODY: dict[str, Any] = {"model": "stand-in", "prompt": PROMPT, "max_tokens": 2}


async def lines(*options: str, count: int) -> list[str]:
    """Return the log of a router that has answered a good request, the same again, and a wrong one."""
    async with fleet("--engine", "sglang", count=1) as workers:
        (worker,) = [each["url"] for each in workers.workers]
        async with router([worker], *options) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            for number in range(2):
                named = {"x-request-id": f"mine {number}"}
                answer = await client.post("/v1/completions", json=BODY, headers=named)
                assert answer.headers["x-request-id"] == f"mine {number}"
            refused = await client.post("/v1/completions", json=BODY | {"model": NOBODYS})
            assert refused.status_code == 404
            assert re.fullmatch("[0-9a-f]{32}", refused.headers["x-request-id"])
            await until(lambda: len(of_requests(front)) == count, f"{count} lines")
    return [line.replace(worker, "WORKER") for line in of_requests(front)]


def of_requests(front: Running) -> list[str]:
    found = [line.decode().rstrip() for line in front.log]
    return [line for line in found if "INFO request" in line or "WARNING request" in line or "{" in line]


async def test_a_request_is_one_line_when_it_ends() -> None:
    first, again, failed = await lines("--log-requests", "1", count=3)
    assert re.search(
        r' INFO request id="mine 0" path=/v1/completions status=200 model=stand-in prompt_tokens=64 '
        r"seconds=\S+ tries=1 worker=WORKER rank=0 overlap_tokens=0 cached_tokens=0 waited_seconds=\S+ "
        r"first_byte_seconds=\S+$",
        first,
    )
    assert "overlap_tokens=48 cached_tokens=48" in again
    assert re.search(
        r" WARNING request .*status=404 error=model_not_found model=.* seconds=\S+ tries=0$", failed
    )
    shown = r'"other\nINFO \u001b[31m' + "x" * (128 - len(NOBODYS.rstrip("x"))) + '"'
    assert f"model={shown} seconds=" in failed


async def test_what_fails_is_logged_however_few_are() -> None:
    (failed,) = await lines("--log-requests", "1e-12", count=1)
    assert "status=404" in failed


async def test_who_has_no_key_can_fill_no_log() -> None:
    options = ("--log-requests", "1", "--api-key", "sk-0123456789")
    async with (
        router(["http://127.0.0.1:1"], *options) as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        for _ in range(20):
            assert (await client.post("/v1/completions", json=BODY)).status_code == 401
        key = {"authorization": "Bearer sk-0123456789"}
        assert (await client.post("/v1/completions", json=BODY, headers=key)).status_code == 503
        await until(lambda: any("status=503" in line for line in of_requests(front)), "a line")
        metrics = (await client.get("/metrics")).text
    refused, line = of_requests(front)[:2]
    assert "requests refused for want of a valid client's key: 1, from 127.0.0.1 (1)" in refused
    assert "status=503" in line
    assert 'kv_router_errors_total{fault="client"} 20.0' in metrics


async def begin(peer: Peer) -> None:
    await peer.send(EVENTS)
    await peer.until_gone()


async def begin_plainly(peer: Peer) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nbegun")
    await peer.until_gone()


async def cut(peer: Peer) -> None:
    await peer.send(EVENTS)
    peer.close()


@pytest.mark.parametrize(
    ("script", "options", "code"),
    [
        (cut, (), "worker_failed"),
        (begin, ("--idle-seconds", "0.2"), "worker_timeout"),
        (begin_plainly, ("--idle-seconds", "0.2"), "worker_timeout"),
        (begin, ("--total-seconds", "0.3"), "total_timeout"),
        (begin_plainly, ("--total-seconds", "0.3"), "total_timeout"),
    ],
)
async def test_what_fails_after_its_first_byte_has_failed(
    script: Script, options: tuple[str, ...], code: str
) -> None:
    async with (
        engine_up(script) as worker,
        router([worker.url], "--log-requests", "1e-12", *options) as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        await joined(client, 1)
        with contextlib.suppress(httpx2.RemoteProtocolError):
            assert (await client.post("/v1/completions", json=BODY)).status_code == 200
        await until(lambda: of_requests(front), "a line")
        metrics = (await client.get("/metrics")).text
    (line,) = of_requests(front)
    assert re.search(rf" WARNING request .*status=200 error={code} .*first_byte_seconds=", line)
    assert 'kv_router_errors_total{fault="worker"} 1.0' in metrics


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_a_pairs_answer_that_is_cut_has_failed(engine: str) -> None:
    async with pairs(engine, *SLOW, router_options=("--log-requests", "1e-12")) as found:
        asked = body(stream=True, max_tokens=5000)
        async with found.client.stream("POST", "/v1/completions", json=asked) as answer:
            pieces = answer.aiter_lines()
            await anext(pieces)
            await found.decode[0].die()
            assert "worker_failed" in "".join([piece async for piece in pieces])
        await until(lambda: of_requests(found.front), "a line")
        metrics = (await found.client.get("/metrics")).text
    (line,) = of_requests(found.front)
    assert re.search(r" WARNING request .*status=200 error=worker_failed ", line)
    assert 'kv_router_errors_total{fault="worker"} 1.0' in metrics


async def test_a_stream_that_is_nothing_but_an_error_has_failed() -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")
        await peer.send(b'content-length: 34\r\n\r\ndata: {"error": {"code": "500"}}\n\n')

    async with engine_up(script) as one, engine_up(script) as other:
        halves = [f"{one.url},role=prefill", f"{other.url},role=decode"]
        options = ("--log-requests", "1e-12", "--retries", "0")
        async with router(halves, *options) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 2)
            assert (await client.post("/v1/completions", json=BODY)).status_code == 200
            await until(lambda: of_requests(front), "a line")
    (line,) = of_requests(front)
    assert re.search(r" WARNING request .*status=200 error=worker_failed ", line)


async def test_what_no_route_takes_is_logged_and_counted() -> None:
    async with (
        engine_up(begin) as worker,
        router([worker.url], "--log-requests", "1e-12") as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        for path in ("/nope", "/admin/fleet/flush", "/v1/load_lora_adapter"):
            lost = await client.post(path, json=BODY, headers={"x-request-id": "mine"})
            assert (lost.status_code, lost.json()["error"]["code"]) == (404, "no_route")
            assert lost.json()["error"]["message"] == f"POST {path}: Not Found"
            assert lost.headers["x-request-id"] == "mine"
        assert (await client.post("/workers")).status_code == 405  # this is a route
        await until(lambda: len(of_requests(front)) == 3, "three lines")
        metrics = (await client.get("/metrics")).text
    assert all(
        " WARNING request id=mine path=other status=404 error=no_route " in line
        for line in of_requests(front)
    )
    assert re.search(r'kv_router_requests_total{.*route="other".*4xx"} 3.0', metrics)
    assert 'kv_router_errors_total{fault="client"} 3.0' in metrics


async def test_what_cannot_be_read_is_counted() -> None:
    async with (
        engine_up(begin) as worker,
        router([worker.url], "--log-requests", "1") as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        for field in (b"x-request-id: a\x01b", b"x-request-id: a\x7fb", b"transfer-encoding: other"):
            reader, writer = await asyncio.open_connection("127.0.0.1", client.base_url.port)
            writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n" + field + b"\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
            writer.close()
        metrics = (await client.get("/metrics")).text
    assert re.search(r'kv_router_requests_total{.*route="other".*4xx"} 3.0', metrics)
    assert 'kv_router_errors_total{fault="client"} 3.0' in metrics


async def test_what_an_operator_cuts_is_not_the_workers_fault() -> None:
    options = ("--log-requests", "1e-12", "--admin-key", "a-key-of-sixteen-characters")
    bearer = {"authorization": "Bearer a-key-of-sixteen-characters"}
    async with (
        engine_up(begin) as worker,
        router([worker.url], *options) as front,
        httpx2.AsyncClient(base_url=front.url, headers=bearer) as client,
    ):
        await joined(client, 1)
        async with client.stream("POST", "/v1/completions", json=BODY) as answer:
            pieces = answer.aiter_lines()
            await anext(pieces)
            gone = await client.delete(f"/admin/workers/{worker.url}", params={"seconds": "0"})
            assert gone.status_code == 200
            assert '"code":"worker_removed"' in "".join([piece async for piece in pieces])
        await until(lambda: of_requests(front), "a line")
        metrics = (await client.get("/metrics")).text
    assert "status=200 error=worker_removed" in of_requests(front)[0]
    assert 'kv_router_errors_total{fault="worker"} 0.0' in metrics
    assert 'kv_router_errors_total{fault="router"} 1.0' in metrics
    assert b"breaker" not in b"".join(front.log)


async def test_no_request_is_logged_unless_asked_for() -> None:
    assert await lines(count=0) == []


async def test_each_line_is_an_object_in_json() -> None:
    async with fleet("--engine", "sglang", count=1) as workers:
        (worker,) = [each["url"] for each in workers.workers]
        options = ("--log-requests", "1", "--log-format", "json")
        async with router([worker], *options) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            await client.post("/v1/completions", json=BODY, headers={"x-request-id": "mine"})
            async with httpx2.AsyncClient() as direct:
                flushed = await direct.post(f"{worker}/flush_cache")
                assert flushed.status_code == 200
            await until(lambda: told(front, "view_reset"), "a reset")
    reset = told(front, "view_reset")[-1]
    assert (reset["worker"], reset["rank"], reset["cause"]) == (worker, 0, "all_blocks_cleared")
    (asked,) = told(front, "request")
    assert asked["id"] == "mine"
    assert asked["status"] == 200
    assert (asked["worker"], asked["rank"], asked["prompt_tokens"]) == (worker, 0, 64)
    states = [each["state"] for each in told(front, "worker_state")]
    assert states[-1] == "ready"
    assert all({"time", "level", "message"} <= set(each) for each in told(front))


def told(front: Running, event: str | None = None) -> list[dict[str, Any]]:
    """Return the lines that tell of an event, or all."""
    found = [json.loads(line) for line in front.log]
    return [each for each in found if event is None or each.get("event") == event]
