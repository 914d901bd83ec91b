"""When one half of a pair fails, the other one is told at once, and why; whichever comes first."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.edge import Edge, one, running, until
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = list(range(100, 164))
_rooms = count(2**62)


@asynccontextmanager
async def _halves(**fields: Any) -> AsyncIterator[tuple[Edge, Edge, dict[str, Any]]]:
    """Run a prefill and a decode worker; yield them and a body for both."""
    async with running(*(WorkerSpec(loop=half, **fields) for half in ("prefill", "decode"))) as edges:
        prefill, decode = edges
        port = prefill.worker.describe()["bootstrap_port"]
        pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": next(_rooms)}
        yield prefill, decode, {"prompt": PROMPT, "max_tokens": 4, **pair}


async def _send(edge: Edge, body: dict[str, Any]) -> asyncio.Task[Any]:
    """Send a request and return when its worker has it, at either queue of a pair."""
    task = asyncio.create_task(edge.post("/v1/completions", body))
    await until(lambda: edge.worker.drivers[0].rank.requests() != [])
    return task


def _open_rooms(edge: Edge) -> dict[int, Any]:
    return edge.worker.edge.rooms._rooms


async def test_a_prompt_that_was_aborted_before_it_was_asked_for() -> None:
    async with _halves() as (prefill, decode, body):
        first = await _send(prefill, body | {"rid": "one"})
        await prefill.post("/abort_request", {"rid": "one"})
        assert (await first).json()["choices"][0]["finish_reason"] == "abort"
        answer = await decode.post("/v1/completions", body)
        assert answer.status_code == 500
        said = "KV transfer failed: the prompt was aborted on the prefill worker"
        assert answer.json()["message"] == said
        assert _open_rooms(prefill) == {}


async def test_a_prompt_that_is_aborted_after_it_was_asked_for() -> None:
    async with _halves(transfer_bandwidth=64 * 131_072 / 30) as (prefill, decode, body):
        second = await _send(decode, body)
        first = await _send(prefill, body | {"rid": "one"})
        side = prefill.worker.drivers[0].rank.prefill
        assert side is not None
        await until(lambda: len(side.inflight) == 1)
        await prefill.post("/abort_request", {"rid": "one"})
        await first
        assert (await second).json()["message"].endswith("the prompt was aborted on the prefill worker")
        assert _open_rooms(prefill) == {}


async def test_a_client_of_the_prefill_worker_that_goes_before_anybody_asks() -> None:
    async with _halves() as (prefill, decode, body):
        first = await _send(prefill, body)
        first.cancel()
        await until(prefill.worker.drivers[0].rank.idle)
        answer = await decode.post("/v1/completions", body)
        assert answer.json()["message"].endswith("the client of the prefill worker has gone")


async def test_a_client_of_the_decode_worker_that_goes_before_the_prompt_comes() -> None:
    async with _halves() as (prefill, decode, body):
        second = await _send(decode, body)
        await until(lambda: any(room.asked for room in _open_rooms(prefill).values()))
        second.cancel()
        await until(lambda: any(room.failed for room in _open_rooms(prefill).values()))
        answer = await prefill.post("/v1/completions", body)
        assert (answer.status_code, answer.json()["message"]) == (500, "the decode worker has gone")
        assert _open_rooms(prefill) == {}
        await until(prefill.worker.drivers[0].rank.idle)


async def test_either_side_says_how_long_it_has_waited_for_the_other() -> None:
    async with _halves(pair_seconds=0.1) as (prefill, decode, body):
        room = body["bootstrap_room"]
        answer = await decode.post("/v1/completions", body)
        wanted = f"KV transfer failed: the prompt of bootstrap room {room} was not here within 0.1 s"
        assert answer.json()["message"] == wanted
        await until(lambda: _open_rooms(prefill) == {})
        answer = await prefill.post("/v1/completions", body)
        assert answer.json()["message"] == f"nobody asked for bootstrap room {room} within 0.1 s"
        answer = await decode.post("/v1/completions", body)
        assert answer.json()["message"].endswith(f"nobody asked for bootstrap room {room} within 0.1 s")


async def test_a_room_is_one_prompts_and_asked_for_once() -> None:
    async with _halves() as (prefill, decode, body):
        first = await _send(prefill, body)
        again = await prefill.post("/v1/completions", body)
        assert (again.status_code, "in use" in again.json()["message"]) == (500, True)
        answer = await decode.post("/v1/completions", body)
        assert answer.status_code == (await first).status_code == 200
    async with _halves() as (prefill, decode, body):
        second = await _send(decode, body)
        await until(lambda: any(room.asked for room in _open_rooms(prefill).values()))
        again = await decode.post("/v1/completions", body)
        assert "asked for already" in again.json()["message"]
        assert (await prefill.post("/v1/completions", body)).status_code == 200
        assert (await second).status_code == 200


@pytest.mark.parametrize(
    "says", [b"", b"HTTP/1.1 200 OK\r\n\r\nnonsense", b"HTTP/1.1 404 Not Found\r\n\r\n", None]
)
async def test_somebody_else_at_the_bootstrap_port(says: bytes | None) -> None:
    """`says` None: the connection is taken and nothing comes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}")
        if says is None:
            await reader.read()
        writer.write(says or b"")
        writer.close()

    other = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    async with other, one(loop="decode", pair_seconds=0.1) as edge:
        body = {"prompt": PROMPT, "bootstrap_host": "localhost", "bootstrap_port": port, "bootstrap_room": 5}
        answer = await edge.post("/v1/completions", body)
        assert answer.status_code == 500
        said = {b"": "closed", None: "did not answer within"}.get(says, "cut short")
        said = "404" if says and b"404" in says else said
        assert said in answer.json()["message"]
        await until(edge.worker.drivers[0].rank.idle)


@pytest.mark.parametrize("host", ["no such host", "a\r\nx: y", "[::1", "http://x", "b\u00fccher", "a/b", ""])
async def test_a_host_that_is_none_is_refused_by_name(host: str) -> None:
    async with one(loop="decode") as edge:
        answer = await edge.post(
            "/v1/completions", {"prompt": PROMPT, "bootstrap_room": 1, "bootstrap_host": host}
        )
        assert (answer.status_code, answer.json()["param"]) == (400, "bootstrap_host")


async def test_a_host_that_cannot_be_found_fails_the_request() -> None:
    async with one(loop="decode") as edge:
        host = "x" * 64 + ".invalid"
        answer = await edge.post(
            "/v1/completions", {"prompt": PROMPT, "bootstrap_room": 1, "bootstrap_host": host}
        )
        assert answer.status_code == 500
        assert "KV transfer failed" in answer.json()["message"]


@pytest.mark.parametrize("host", ["::1", "[::1]"])
async def test_a_pair_meets_over_ipv6(host: str) -> None:
    prefill, decode = WorkerSpec(loop="prefill", host="::1"), WorkerSpec(loop="decode")
    async with running(prefill, decode) as [first, second]:
        port = first.worker.describe()["bootstrap_port"]
        body = {"prompt": PROMPT, "bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": 3}
        answers = await asyncio.gather(*(edge.post("/v1/completions", body) for edge in (first, second)))
        assert [answer.status_code for answer in answers] == [200, 200]


async def test_vllm_says_why_a_prompt_cannot_be_fetched() -> None:
    async with running(WorkerSpec(engine="vllm"), WorkerSpec(engine="vllm")) as [prefill, decode]:
        answer = await prefill.complete(PROMPT, 1, kv_transfer_params={"do_remote_decode": True})
        params = answer["kv_transfer_params"]
        await decode.complete(PROMPT, 2, kv_transfer_params=params)
        body = {"prompt": PROMPT, "kv_transfer_params": params}
        said = (await decode.post("/v1/completions", body)).json()["error"]["message"]
        assert said.startswith("KV transfer failed: no KV is kept for request ")
        await until(decode.worker.drivers[0].rank.idle)


@pytest.mark.parametrize("missing", ["remote_host", "remote_port", "remote_request_id"])
async def test_vllm_computes_a_prompt_itself_when_it_is_not_told_where_it_is(missing: str) -> None:
    """As its connectors do: the request makes no use of a transfer."""
    async with running(WorkerSpec(engine="vllm"), WorkerSpec(engine="vllm")) as [prefill, decode]:
        answer = await prefill.complete(PROMPT, 1, kv_transfer_params={"do_remote_decode": True})
        params = answer["kv_transfer_params"] | {missing: None}
        alone = await decode.complete(PROMPT, 3, kv_transfer_params=params)
        assert alone["usage"]["completion_tokens"] == 3
        assert prefill.worker.edge.rooms._offers != {}
