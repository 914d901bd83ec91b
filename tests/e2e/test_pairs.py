"""Prefill/decode pairs of real processes, in both engines' ways: what clients get, and where the load is."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.e2e.pairs import LONG, PROMPT, SLOW, body, pairs
from tests.e2e.processes import fleet
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from tests.e2e.pairs import Pairs

ENGINES = pytest.mark.parametrize("engine", ["sglang", "vllm"])


def cached(answer: httpx2.Response) -> int:
    count: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return count


async def events(found: Pairs, **fields: Any) -> list[str]:
    async with found.client.stream("POST", "/v1/completions", json=body(stream=True, **fields)) as answer:
        assert answer.status_code == 200
        lines = [line async for line in answer.aiter_lines()]
    return [line.removeprefix("data: ") for line in lines if line.startswith("data: ")]


@ENGINES
async def test_a_pair_says_what_one_worker_says(engine: str) -> None:
    async with fleet("--engine", engine, count=1) as one, httpx2.AsyncClient() as direct:
        alone = await direct.post(f"{one.workers[0]['url']}/v1/completions", json=body())
    async with pairs(engine) as found:
        answer = await found.client.post("/v1/completions", json=body())
        assert answer.status_code == 200, answer.text
        assert answer.json()["choices"] == alone.json()["choices"]
        assert answer.headers["x-kv-router-worker"] == found.urls("prefill")[0]
        assert answer.headers["x-kv-router-rank"] == "0"
        assert answer.headers["x-kv-router-decode-worker"] == found.urls("decode")[0]
        assert answer.headers["x-kv-router-decode-rank"] == "0"
        streamed = await events(found)
        assert streamed[-1] == "[DONE]"
        text = "".join(json.loads(event)["choices"][0]["text"] for event in streamed[:-1])
        assert text == alone.json()["choices"][0]["text"]
        await found.rest()


@ENGINES
async def test_overlap_counts_at_the_prefill_worker(engine: str) -> None:
    """The second request goes where the first one's prompt was computed, and its count is as expected."""
    async with pairs(engine, prefill=2, decode=2) as found:
        first = await found.client.post("/v1/completions", json=body())
        await found.rest()
        for _ in range(4):
            again = await found.client.post("/v1/completions", json=body())
            assert again.headers["x-kv-router-worker"] == first.headers["x-kv-router-worker"]
            assert again.headers["x-kv-router-overlap-tokens"] == "48"
            if engine == "sglang":
                assert cached(again) == 48
        metrics = (await found.client.get("/metrics")).text
        assert 'kv_router_prediction_error_tokens_bucket{model="stand-in",le="-1.0"} 0.0' in metrics
        assert 'kv_router_prediction_error_tokens_bucket{model="stand-in",le="0.0"} 5.0' in metrics
        assert 'kv_router_cached_tokens_total{model="stand-in"} 192.0' in metrics


@ENGINES
async def test_load_is_where_the_work_is(engine: str) -> None:
    async with pairs(engine, *SLOW) as found:
        streaming = asyncio.create_task(events(found, prompt=LONG, max_tokens=60))
        await found.busy("prefill", tokens=True)
        assert await found.loads("prefill") == [(1, len(LONG))]
        assert await found.loads("decode") == [(1, 0)]

        async def handed_over() -> bool:
            return await found.loads("prefill") == [(0, 0)]

        await until_awaited(handed_over, "the prompt to be handed over")
        assert await found.loads("decode") == [(1, 0)]
        assert len(await streaming) == 61
        await found.rest()


@ENGINES
async def test_chats_several_prompts_and_several_answers(engine: str) -> None:
    async with pairs(engine) as found:
        messages = [{"role": "user", "content": "hello"}]
        chat: dict[str, Any] = {"model": "stand-in", "messages": messages, "max_completion_tokens": 6}
        answer = await found.client.post("/v1/chat/completions", json=chat)
        assert answer.json()["usage"]["completion_tokens"] == 6
        assert "x-kv-router-decode-worker" in answer.headers
        options = {"stream": True, "stream_options": {"include_usage": True}, "min_tokens": 2}
        streamed = await found.client.post("/v1/chat/completions", json=chat | options)
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert '"completion_tokens":6' in streamed.text
        two = [PROMPT, PROMPT[:20]]
        cases: list[tuple[Any, int, int]] = [(two, 1, 2), (PROMPT, 2, 2), (two, 2, 4)]
        for prompt, copies, expected in cases:
            answer = await found.client.post("/v1/completions", json=body(prompt=prompt, n=copies))
            assert answer.status_code == 200, answer.text
            assert len(answer.json()["choices"]) == expected
            # An answer of a vLLM prefill worker names one transfer: those go to the decode worker alone.
            assert ("x-kv-router-decode-worker" in answer.headers) == (engine == "sglang")
        await found.rest()


async def test_the_native_route_is_paired_too() -> None:
    async with pairs("sglang") as found:
        native = {"model": "stand-in", "input_ids": PROMPT, "sampling_params": {"max_new_tokens": 5}}
        answer = await found.client.post("/generate", json=native)
        assert answer.json()["meta_info"]["completion_tokens"] == 5
        assert "x-kv-router-decode-worker" in answer.headers
        batch = native | {"input_ids": [PROMPT, PROMPT[:20]]}
        assert len((await found.client.post("/generate", json=batch)).json()) == 2


@ENGINES
async def test_each_half_runs_on_the_rank_that_was_chosen(engine: str) -> None:
    async with pairs(engine, "--dp", "2") as found:
        seen: list[set[str]] = [set(), set()]
        for number in range(6):
            prompt = [number * 7 + index % 90 + 1 for index in range(64)]
            answer = await found.client.post("/v1/completions", json=body(prompt=prompt))
            assert answer.status_code == 200, answer.text
            rank = int(answer.headers["x-kv-router-rank"])
            await found.rest()
            again = await found.client.post("/v1/completions", json=body(prompt=prompt, routed_dp_rank=rank))
            assert again.headers["x-kv-router-rank"] == str(rank)
            assert again.headers["x-kv-router-overlap-tokens"] == "48"
            if engine == "sglang":
                assert cached(again) == 48
            for one in (answer, again):
                seen[0].add(one.headers["x-kv-router-rank"])
                seen[1].add(one.headers["x-kv-router-decode-rank"])
        assert seen == [{"0", "1"}] * 2
        tokens = [rank["tokens"] for rank in await found.truth(found.prefill[0])]
        assert sum(tokens) == 6 * 64
        assert all(tokens)
        none = await found.client.post("/v1/completions", json=body(routed_dp_rank=2))
        assert (none.status_code, none.json()["error"]["param"]) == (400, "routed_dp_rank")


async def test_a_decode_worker_that_says_what_it_holds_is_chosen_by_it() -> None:
    """Three requests at once elsewhere weigh less than a prompt of 4,000 tokens that need not travel."""
    async with pairs("sglang", decode=2, decode_options=["--decode-radix-cache"]) as found:
        first = await found.client.post("/v1/completions", json=body(prompt=LONG))
        await found.rest()
        for _ in range(3):
            again = await found.client.post("/v1/completions", json=body(prompt=LONG))
            assert again.headers["x-kv-router-decode-worker"] == first.headers["x-kv-router-decode-worker"]
        rows = await found.rows()
        held = [sum(rows[url]["ranks"][0]["blocks"].values()) for url in found.urls("decode")]
        assert sorted(map(bool, held)) == [False, True]


async def test_decode_workers_without_a_cache_take_turns_and_hold_no_predictions() -> None:
    async with pairs("sglang", decode=2) as found:
        chosen = []
        for _ in range(4):
            answer = await found.client.post("/v1/completions", json=body())
            chosen.append(answer.headers["x-kv-router-decode-worker"])
        assert chosen[:2] == chosen[2:]
        assert len(set(chosen)) == 2
        rows = await found.rows()
        assert [rows[url]["ranks"][0]["predicted_blocks"] for url in found.urls("decode")] == [0, 0]
        assert [rows[url]["role"] for url in found.urls("decode")] == ["decode", "decode"]


async def test_a_short_prompt_goes_straight_to_a_worker_that_can_do_both() -> None:
    options = ["--pd-min-uncached", "100"]
    async with pairs("vllm", router_options=options) as found:
        short = await found.client.post("/v1/completions", json=body())
        assert short.headers["x-kv-router-worker"] == found.urls("decode")[0]
        assert "x-kv-router-decode-worker" not in short.headers
        long = await found.client.post("/v1/completions", json=body(prompt=LONG[:200]))
        assert long.headers["x-kv-router-worker"] == found.urls("prefill")[0]
        await found.rest()
        # By now the decode worker holds most of it, so that it would have little to compute.
        held = await found.client.post("/v1/completions", json=body(prompt=LONG[:200]))
        assert held.headers["x-kv-router-worker"] == found.urls("decode")[0]
    async with pairs("sglang", router_options=options) as found:
        short = await found.client.post("/v1/completions", json=body())
        assert short.headers["x-kv-router-decode-worker"] == found.urls("decode")[0]
    async with pairs("sglang", both=1, router_options=options) as found:
        short = await found.client.post("/v1/completions", json=body())
        assert short.headers["x-kv-router-worker"] == found.urls("both")[0]


@ENGINES
async def test_workers_that_do_both_compete_with_pairs(engine: str) -> None:
    async with pairs(engine, *SLOW, both=1) as found:
        prompts = [[number * 11 + index % 80 + 1 for index in range(512)] for number in range(8)]
        asks = [found.client.post("/v1/completions", json=body(prompt=prompt)) for prompt in prompts]
        answers = await asyncio.gather(*asks)
        assert [answer.status_code for answer in answers] == [200] * 8
        workers = {answer.headers["x-kv-router-worker"] for answer in answers}
        assert workers == {*found.urls("prefill"), *found.urls("both")}
        await found.rest()


@ENGINES
@pytest.mark.parametrize("missing", ["prefill", "decode"])
async def test_a_model_that_lacks_a_role_is_a_503_that_says_which(engine: str, missing: str) -> None:
    async with pairs(engine, prefill=int(missing == "decode"), decode=int(missing == "prefill")) as found:
        answer = await found.client.post("/v1/completions", json=body())
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["error"]["code"] == "no_worker"
        assert answer.json()["error"]["message"].startswith(f"no {missing} worker that serves 'stand-in'")
        assert (await found.client.get("/ready")).status_code == 503
        explained = (await found.client.post("/explain", json=body())).json()
        assert explained["chosen"] is None
        (row,) = explained["candidates"]
        assert f"no {missing} worker" in row["why"]


@ENGINES
async def test_explain_shows_the_pair(engine: str) -> None:
    async with pairs(engine, prefill=2, both=1) as found:
        await found.client.post("/v1/completions", json=body())
        await found.rest()
        explained = (await found.client.post("/explain", json=body())).json()
        rows = {row["worker"]: row for row in explained["candidates"]}
        for role in ("prefill", "decode", "both"):
            assert {rows[url]["role"] for url in found.urls(role)} == {role}
        assert {row["eligible"] for row in explained["candidates"]} == {True}
        answer = await found.client.post("/v1/completions", json=body())
        assert explained["chosen"] == {"worker": answer.headers["x-kv-router-worker"], "rank": 0}
        if explained["chosen"]["worker"] in found.urls("prefill"):
            assert explained["decode"] == {"worker": found.urls("decode")[0], "rank": 0}
        else:
            assert explained["decode"] is None


async def test_routes_that_are_not_split_go_where_they_can_be_done() -> None:
    async with pairs("vllm") as found:
        answer = await found.client.post("/tokenize", json={"model": "stand-in", "prompt": "hello"})
        assert answer.status_code == 200
    async with pairs("sglang") as found:
        ask = {"model": "stand-in", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]}
        answer = await found.client.post("/v1/messages", json=ask)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_worker")
        assert "cannot split" in answer.json()["error"]["message"]


@pytest.mark.parametrize("half", ["prefill", "decode"])
async def test_a_request_waits_for_a_half_that_is_paused(half: str) -> None:
    async with pairs("sglang") as found, httpx2.AsyncClient() as direct:
        (url,) = found.urls(half)
        await direct.post(f"{url}/pause_generation", json={"mode": "retract"})

        async def paused() -> bool:
            return bool((await found.rows())[url]["state"] == "paused")

        await until_awaited(paused, "the pause to be seen")
        assert (await found.client.get("/ready")).status_code == 503
        asked = asyncio.create_task(found.client.post("/v1/completions", json=body()))
        await direct.post(f"{url}/continue_generation", json={})
        assert (await asked).status_code == 200


@ENGINES
async def test_no_half_has_more_requests_than_a_worker_may_have(engine: str) -> None:
    options = ("--max-worker-inflight", "2")
    async with pairs(engine, *SLOW, prefill=2, router_options=options) as found:
        asked = [asyncio.create_task(found.client.post("/v1/completions", json=body())) for _ in range(8)]
        most = 0
        while not all(task.done() for task in asked):
            (load,) = await found.loads("decode")
            most = max(most, load[0])
        assert {(await task).status_code for task in asked} == {200}
        assert most == 2
        await found.rest()
