"""What the router knows of prompts, seen from outside: modes, comparisons, and routes without a prompt."""

from __future__ import annotations

import shutil
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.e2e.processes import both, fleet, joined, router
from tests.prompts import models
from tests.waiting import until_awaited
from workers import bytelevel

if TYPE_CHECKING:
    from pathlib import Path

TEXT = "It was the best of times, it was the worst of times. " * 12
MESSAGES = [{"role": "user", "content": TEXT}]


async def complete(client: httpx2.AsyncClient, prompt: Any, **fields: Any) -> httpx2.Response:
    body = {"model": "stand-in", "prompt": prompt, "max_tokens": 2, **fields}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def mode(client: httpx2.AsyncClient) -> tuple[str, str]:
    row = (await client.get("/workers")).json()["workers"][0]
    return row["tokens"], row["tokens_why"]


async def test_counts_that_agree_prove_a_model_and_are_counted() -> None:
    async with both("--engine", "sglang", router_options=("--forward-input-ids", "on")) as (_, _, client):
        assert await mode(client) == ("fastokens", "")
        counts = [(await complete(client, TEXT)).json()["usage"]["prompt_tokens"] for _ in range(3)]
        assert len(set(counts)) == 1
        metrics = (await client.get("/metrics")).text
        assert 'kv_router_token_checks_total{outcome="right"} 3.0' in metrics
        assert 'kv_router_token_checks_total{outcome="wrong"} 0.0' in metrics
        assert 'kv_router_tokens_mode{mode="fastokens"' in metrics


async def test_a_model_that_counts_otherwise_is_routed_by_load_only_and_says_why(tmp_path: Path) -> None:
    wrong = models.deepseek(tmp_path, "{{ messages[0].content }}")
    async with both("--engine", "sglang", count=1, router_options=("--tokenizer", wrong)) as (_, _, client):
        for _ in range(4):
            answer = await complete(client, TEXT)
        assert answer.headers["x-kv-router-overlap-tokens"] == "0"
        tokens, why = await mode(client)
        assert tokens == "distrusted"
        assert why.startswith("the engine counts ")
        explained = (await client.post("/explain", json={"model": "stand-in", "prompt": TEXT})).json()
        assert explained["why"] == "the engine counts other tokens than the router"
        ids = await complete(client, list(range(1, 200)))
        assert ids.status_code == 200


@pytest.mark.parametrize(("engine", "expected"), [("sglang", "text"), ("vllm", "worker")])
async def test_without_a_tokenizer_the_worker_is_asked_or_the_text_compared(
    tmp_path: Path, engine: str, expected: str
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    bytelevel.write(gone)
    async with AsyncExitStack() as stack:
        workers = await stack.enter_async_context(fleet("--engine", engine, "--tokenizer", str(gone)))
        shutil.rmtree(gone)
        urls = [worker["url"] for worker in workers.workers]
        front = await stack.enter_async_context(router(urls, "--tokenize-seconds", "20"))
        client = await stack.enter_async_context(httpx2.AsyncClient(base_url=front.url, timeout=30.0))
        await joined(client, 2)
        first = await complete(client, TEXT)
        assert (await mode(client))[0] == expected

        async def back() -> bool:
            again = await complete(client, TEXT + "And so on.")
            same = again.headers["x-kv-router-worker"] == first.headers["x-kv-router-worker"]
            return same and int(again.headers["x-kv-router-overlap-tokens"]) > 100

        await until_awaited(back, "a follow-up goes where its text went")


async def test_several_prompts_count_together() -> None:
    async with both(count=1) as (_, _, client):
        prompts = [list(range(1, 50)), list(range(1, 90))]
        explained = (await client.post("/explain", json={"model": "stand-in", "prompt": prompts})).json()
        assert (explained["prompt_tokens"], explained["exact"]) == (49 + 89, True)
        answer = await complete(client, prompts)
        assert answer.json()["usage"]["prompt_tokens"] == 49 + 89


async def test_other_routes_of_engines_reach_a_worker_and_those_that_change_one_do_not() -> None:
    async with both(count=1) as (_, _, client):
        for path in ("/v1/embeddings", "/v1/anything", "/rerank", "/score"):
            answer = await client.post(path, json={"model": "stand-in", "input": "x"})
            assert "x-kv-router-worker" in answer.headers, path
        for path in ("/v1/load_lora_adapter", "/flush_cache", "/update_weights_from_disk"):
            answer = await client.post(path, json={"model": "stand-in"})
            assert answer.status_code in {404, 405}
            assert "x-kv-router-worker" not in answer.headers, path
        unknown = await client.post("/v1/embeddings", json={"model": "nobody", "input": "x"})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_form_goes_to_a_worker_of_the_model_that_it_names() -> None:
    async with fleet(count=1) as one, fleet("--model", "org/whisper", count=1) as other:
        urls = [one.workers[0]["url"], other.workers[0]["url"]]
        async with router(urls) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 2)
            path, audio = "/v1/audio/transcriptions", {"file": ("a.wav", bytes(range(256)) * 1000)}
            for url, model in zip(urls * 2, ["stand-in", "org/whisper"] * 2, strict=True):
                answer = await client.post(path, data={"model": model}, files=audio)
                assert answer.headers["x-kv-router-worker"] == url
            unknown = await client.post(path, data={"model": "nobody"}, files=audio)
            assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
            assert "stand-in, org/whisper" in unknown.json()["error"]["message"]
            nameless = await client.post(path, data={"language": "en"}, files=audio)
            assert (nameless.status_code, nameless.json()["error"]["param"]) == (400, "model")
