"""What clients get: the worker's own bytes, chunk by chunk, and honest endings."""

from __future__ import annotations

import asyncio
import contextlib
import json
from typing import Any

import httpx2
import openai
import pytest

from tests.e2e.processes import Running, both, fleet, joined, router
from tests.waiting import until_awaited

PROMPT = [index % 250 + 1 for index in range(64)]


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "stand-in", "prompt": PROMPT, "max_tokens": 8, **fields}


async def load(client: httpx2.AsyncClient) -> tuple[int, int]:
    rows = (await client.get("/workers")).json()["workers"]
    return sum(row["inflight_requests"] for row in rows), sum(row["inflight_tokens"] for row in rows)


async def idle(client: httpx2.AsyncClient) -> bool:
    return await load(client) == (0, 0)


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
async def test_an_answer_is_byte_for_byte_the_workers(path: str) -> None:
    """Ids and times differ between two answers, so a recording worker gives the same bytes to both."""
    recorded = b'{"odd":  "spacing\\u00e9", "usage":{"prompt_tokens_details":{"cached_tokens": 0}}}\n\n'

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = (
                    int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                    if b"content-length" in head
                    else 0
                )
                await reader.readexactly(length)
                info = json.dumps(
                    {"model_path": "stand-in", "tokenizer_path": "x", "kv_events": None}
                ).encode()
                answer = recorded if head.startswith(b"post") else info
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server, router([url]) as front, httpx2.AsyncClient(base_url=front.url) as client:
        await joined(client, 1)
        answer = await client.post(path, json={"model": "stand-in", "prompt": PROMPT, "input_ids": PROMPT})
        assert answer.content == recorded


async def test_a_stream_arrives_chunk_by_chunk() -> None:
    """The first chunk is here while the worker still has most of its tokens to make."""
    async with both("--profile", "8b-h100") as (_, _, client):
        chunks: list[str] = []
        async with client.stream("POST", "/v1/completions", json=body(stream=True, max_tokens=20)) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if not chunks and line.startswith("data:"):
                    running = await load(client)
                    assert running[0] == 1
                    assert running[1] == 0
                if line.startswith("data:"):
                    chunks.append(line)
        assert len(chunks) > 10
        assert chunks[-1] == "data: [DONE]"
        await until_awaited(lambda: idle(client), "an empty ledger")


async def test_a_client_that_leaves_cancels_its_request_at_the_worker() -> None:
    async with both("--profile", "8b-h100", count=1) as (workers, _, client):
        async with client.stream(
            "POST", "/v1/completions", json=body(stream=True, max_tokens=5000)
        ) as answer:
            await anext(answer.aiter_lines())
        await until_awaited(lambda: idle(client), "an empty ledger")
        async with httpx2.AsyncClient() as direct:

            async def stopped() -> bool:
                loads = (await direct.get(f"{workers.workers[0]['url']}/v1/loads")).json()
                return '"num_running_reqs": 0' in json.dumps(loads)

            await until_awaited(stopped, "the worker to stop")


async def test_a_client_that_leaves_before_the_first_byte_leaves_no_load() -> None:
    async with both("--profile", "70b-tp8", count=1) as (_, _, client):
        asked = asyncio.create_task(client.post("/v1/completions", json=body(max_tokens=1000)))

        async def running() -> bool:
            return (await load(client))[0] == 1

        await until_awaited(running, "the request to run")
        asked.cancel()
        await until_awaited(lambda: idle(client), "an empty ledger")


async def test_a_client_that_leaves_behind_a_long_body_leaves_no_load() -> None:
    """uvicorn stops reading behind a body of more than 64 KiB that comes in pieces."""
    async with both("--profile", "70b-tp8", count=1) as (_, front, client):
        raw = json.dumps(body(prompt=[1] * 60_000, max_tokens=1000)).encode()
        host, port = front.url.removeprefix("http://").split(":")
        _, writer = await asyncio.open_connection(host, int(port))
        writer.write(b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(raw))
        for at in range(0, len(raw), 20_000):
            writer.write(raw[at : at + 20_000])
            await writer.drain()

        async def running() -> bool:
            return (await load(client))[0] == 1

        await until_awaited(running, "the request to run")
        writer.close()
        await until_awaited(lambda: idle(client), "an empty ledger")


async def one_dead_worker(front: str, dead: Running) -> None:
    dead.kill()
    await dead.process.wait()
    async with httpx2.AsyncClient(base_url=front) as client:
        answers = await asyncio.gather(*(client.post("/v1/completions", json=body()) for _ in range(20)))
    assert {answer.status_code for answer in answers} == {200}


async def test_a_dead_worker_before_the_first_byte_means_another_one_unseen() -> None:
    async with fleet(count=1) as one, fleet(count=1) as other:
        urls = [running.workers[0]["url"] for running in (one, other)]
        # Probes are too rare to notice the death: the requests themselves have to.
        async with (
            router(urls, "--probe-seconds", "60") as front,
            httpx2.AsyncClient(base_url=front.url) as client,
        ):
            await joined(client, 2)
            await one_dead_worker(front.url, one)

            async def seen() -> bool:
                rows = (await client.get("/workers")).json()["workers"]
                return bool({row["url"]: row["state"] for row in rows}[urls[0]] == "failed")

            await until_awaited(seen, "the death to be seen")
            assert await idle(client)


async def test_a_worker_that_dies_in_a_stream_ends_it_with_an_error_event() -> None:
    async with fleet("--profile", "8b-h100", count=1) as worker:
        url = worker.workers[0]["url"]
        async with router([url]) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            lines: list[str] = []
            async with client.stream(
                "POST", "/v1/completions", json=body(stream=True, max_tokens=5000)
            ) as answer:
                async for line in answer.aiter_lines():
                    if not lines:
                        worker.kill()
                    lines.append(line)
            events = [line for line in lines if line.startswith("data: ")]
            error = json.loads(events[-1].removeprefix("data: "))["error"]
            assert error["type"] == "upstream_error"
            await until_awaited(lambda: idle(client), "an empty ledger")


async def test_the_openai_client_sees_a_cut_stream_as_an_error() -> None:
    async with fleet("--profile", "8b-h100", count=1) as worker:
        url = worker.workers[0]["url"]
        async with router([url]) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            api = openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0)
            stream = await api.chat.completions.create(
                model="stand-in",
                messages=[{"role": "user", "content": "hello"}],
                stream=True,
                max_tokens=5000,
            )
            await anext(aiter(stream))
            worker.kill()
            with pytest.raises(openai.APIError):
                _ = [chunk async for chunk in stream]
            await api.close()


async def test_the_openai_client_completes_and_streams() -> None:
    async with both() as (_, front, _):
        api = openai.AsyncOpenAI(base_url=f"{front.url}/v1", api_key="none", max_retries=0)
        models = await api.models.list()
        assert [model.id for model in models.data] == ["stand-in"]
        messages: Any = [{"role": "user", "content": "hello"}]
        whole = await api.chat.completions.create(model="stand-in", messages=messages, max_tokens=5)
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 5
        stream = await api.chat.completions.create(
            model="stand-in",
            messages=messages,
            max_tokens=5,
            stream=True,
            stream_options={"include_usage": True},
        )
        last = [chunk async for chunk in stream][-1]
        assert last.usage is not None
        assert last.usage.prompt_tokens_details is not None
        await api.close()


async def test_no_worker_at_all_is_a_503_that_says_when_to_come_back() -> None:
    async with router(["http://127.0.0.1:9"]) as front, httpx2.AsyncClient(base_url=front.url) as client:
        answer = await client.post("/v1/completions", json=body())
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        assert answer.json()["error"]["code"] == "no_worker"
        assert (await client.get("/ready")).status_code == 503
        assert (await client.get("/health")).status_code == 200


BAD = [
    (b"{", None, 400),
    (b"", None, 400),
    (b"[]", None, 400),
    (b'{"model": "stand-in"}', "prompt", 400),
    (b'{"model": "stand-in", "prompt": {}}', "prompt", 400),
    (b'{"model": "stand-in", "prompt": [-1]}', "prompt", 400),
    (b'{"model": 3, "prompt": "x"}', "model", 400),
    (b'{"model": "other", "prompt": "x"}', "model", 404),
    (b'{"model": "stand-in", "prompt": "' + b"x" * 2000 + b'"}', None, 413),
]


async def test_bad_bodies_get_an_openai_error_that_names_the_field() -> None:
    async with both(count=1, router_options=("--max-body-bytes", "1500")) as (_, _, client):
        for raw, param, status in BAD:
            for path in ("/v1/completions", "/explain"):
                answer = await client.post(path, content=raw)
                error = answer.json()["error"]
                assert (answer.status_code, error["param"]) == (status, param), (path, raw[:60], error)
                assert error["type"] == "invalid_request_error"
                assert "Traceback" not in answer.text
        assert await idle(client)


async def test_a_request_id_is_passed_on_or_made() -> None:
    async with both(count=1) as (_, _, client):
        given = await client.post("/v1/completions", json=body(), headers={"x-request-id": "mine"})
        assert given.headers.get_list("x-request-id") == ["mine"]
        made = await client.post("/v1/completions", json=body())
        assert len(made.headers["x-request-id"]) == 32


async def test_metrics_tell_what_has_happened() -> None:
    async with both(count=1) as (workers, _, client):
        await client.post("/v1/completions", json=body())
        await client.post("/v1/completions", json=body())
        text = (await client.get("/metrics")).text
        route = 'model="stand-in",route="/v1/completions",status_class="2xx"'
        assert f"kv_router_requests_total{{{route}}} 2.0" in text
        assert 'kv_router_cached_tokens_total{model="stand-in"} 48.0' in text
        assert 'kv_router_overlap_tokens_total{model="stand-in"} 48.0' in text
        assert f'kv_router_worker_state{{state="ready",worker="{workers.workers[0]["url"]}"}} 1.0' in text


async def test_a_route_that_no_worker_of_the_model_has_is_not_found() -> None:
    async with both("--engine", "vllm", count=1) as (_, _, client):
        answer = await client.post("/generate", json={"model": "stand-in", "input_ids": [1]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "no_route")
        assert "SGLang" in answer.json()["error"]["message"]


async def test_one_model_is_told_by_its_name() -> None:
    async with both("--model", "org/base", "--engine", "vllm", "--lora", "sql", count=1) as (_, _, client):
        listed = (await client.get("/v1/models")).json()["data"]
        for name in ("org/base", "sql"):
            card = (await client.get(f"/v1/models/{name}")).json()
            assert card | {"created": 0} in [each | {"created": 0} for each in listed]
            assert card["id"] == name
        assert (await client.get("/v1/models/org%2Fbase")).json()["id"] == "org/base"
        for name in ("nobody", "org", "org/base/", "org/base:sql"):
            answer = await client.get(f"/v1/models/{name}")
            error = answer.json()["error"]
            assert (answer.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
        assert (await client.delete("/v1/models/sql")).status_code == 405


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", ""), ("HEAD", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")],
)
async def test_what_one_worker_has_stored_is_asked_of_no_other_one(method: str, path: str) -> None:
    async with both(count=1) as (_, _, client):
        answer = await client.request(method, f"/v1/responses/resp_1{path}")
        assert "x-kv-router-worker" not in answer.headers
        assert answer.status_code == 404
        if method != "HEAD":
            assert answer.json()["error"]["code"] == "not_routed"
            assert "x-kv-router-worker" in answer.json()["error"]["message"]
