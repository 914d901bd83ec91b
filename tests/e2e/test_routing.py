"""The main job, with real processes and real sockets: requests go where their prefix is."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.e2e.processes import both, fleet, joined, router
from tests.waiting import until_awaited

FIRST = [index % 250 + 1 for index in range(200)]
SECOND = [250 - index % 250 for index in range(200)]


async def complete(client: httpx2.AsyncClient, prompt: list[int] | str, **fields: Any) -> httpx2.Response:
    body = {"model": "stand-in", "prompt": prompt, "max_tokens": 4, **fields}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    return answer


async def explain(client: httpx2.AsyncClient, prompt: list[int]) -> dict[str, dict[str, Any]]:
    answer = await client.post("/explain", json={"model": "stand-in", "prompt": prompt})
    assert answer.status_code == 200, answer.text
    return {row["worker"]: row for row in answer.json()["candidates"]}


async def ranks(client: httpx2.AsyncClient) -> dict[str, dict[str, Any]]:
    rows = (await client.get("/workers")).json()["workers"]
    return {row["url"]: row["ranks"][0] for row in rows}


async def settled(client: httpx2.AsyncClient, prompt: list[int], worker: str, tokens: int) -> None:
    """Wait until the worker's own events tell that it holds this much of a prompt."""

    async def held() -> bool:
        return bool((await explain(client, prompt))[worker]["overlap_tokens"]["GPU"] == tokens)

    await until_awaited(held, f"{tokens} tokens held")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_a_prompt_goes_back_to_its_worker_and_another_to_the_other(engine: str) -> None:
    async with both("--engine", engine) as (_, _, client):
        first = await complete(client, FIRST)
        worker = first.headers["x-kv-router-worker"]
        assert first.headers["x-kv-router-overlap-tokens"] == "0"
        await settled(client, FIRST, worker, 192)
        again = await complete(client, FIRST)
        assert again.headers["x-kv-router-worker"] == worker
        assert again.headers["x-kv-router-rank"] == "0"
        assert again.headers["x-kv-router-overlap-tokens"] == "192"
        assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 192
        other = await complete(client, SECOND)
        assert other.headers["x-kv-router-worker"] != worker


async def test_a_follow_up_before_its_event_is_routed_by_prediction() -> None:
    async with both() as (_, _, client):
        first = await complete(client, FIRST)
        row = (await explain(client, FIRST))[first.headers["x-kv-router-worker"]]
        assert row["overlap_tokens"]["GPU"] + row["predicted_tokens"] == 192


async def test_a_flush_of_a_paused_worker_empties_its_view_before_it_continues() -> None:
    async with both("--paused-loop", "publishing") as (_, _, client), httpx2.AsyncClient() as direct:
        worker = (await complete(client, FIRST)).headers["x-kv-router-worker"]
        await settled(client, FIRST, worker, 192)
        before = (await ranks(client))[worker]["resets"].get("all_blocks_cleared", 0)
        await direct.post(f"{worker}/pause_generation", json={"mode": "retract"})
        assert (await direct.post(f"{worker}/flush_cache")).status_code == 200

        async def empty() -> bool:
            row = (await explain(client, FIRST))[worker]
            return bool(row["overlap_tokens"]["GPU"] + row["predicted_tokens"] == 0)

        await until_awaited(empty, "an empty view")
        assert (await ranks(client))[worker]["resets"]["all_blocks_cleared"] == before + 1
        assert (await direct.get(f"{worker}/ready")).status_code == 503
        await direct.post(f"{worker}/continue_generation", json={})
        again = await complete(client, FIRST)
        assert again.headers["x-kv-router-overlap-tokens"] == "0"


async def test_a_paused_worker_is_routed_around() -> None:
    async with both() as (_, _, client), httpx2.AsyncClient() as direct:
        worker = (await complete(client, FIRST)).headers["x-kv-router-worker"]
        await direct.post(f"{worker}/pause_generation", json={"mode": "retract"})

        async def paused() -> bool:
            row = (await explain(client, FIRST))[worker]
            return not row["eligible"] and "paused" in row["why"]

        await until_awaited(paused, "the pause to be seen")
        assert (await complete(client, FIRST)).headers["x-kv-router-worker"] != worker


async def test_chat_and_native_prompts_as_text_use_the_workers_own_tokenizer() -> None:
    async with both() as (_, _, client):
        chat = {
            "model": "stand-in",
            "max_tokens": 4,
            "messages": [{"role": "user", "content": "What is a prefix cache, and why is it shared?"}],
        }
        native = {
            "text": "a native prompt that is long enough to fill blocks",
            "sampling_params": {"max_new_tokens": 4},
        }
        for path, body in (("/v1/chat/completions", chat), ("/generate", native)):
            first = await client.post(path, json=body)
            again = await client.post(path, json=body)
            assert (first.status_code, again.status_code) == (200, 200)
            assert again.headers["x-kv-router-worker"] == first.headers["x-kv-router-worker"]
            expected = int(again.headers["x-kv-router-overlap-tokens"])
            assert expected > 0
            assert cached_tokens(again.json()) == expected


def cached_tokens(answer: dict[str, Any]) -> int:
    if "meta_info" in answer:
        return int(answer["meta_info"]["cached_tokens"])
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_every_rank_of_a_worker_is_a_place_of_its_own(engine: str) -> None:
    async with both("--engine", engine, "--dp", "3", count=1) as (_, _, client):
        placed = {}
        for seed in range(3):
            prompt = [(seed * 7 + index) % 250 + 1 for index in range(100)]
            first = await complete(client, prompt)
            again = await complete(client, prompt)
            placed[seed] = first.headers["x-kv-router-rank"]
            assert again.headers["x-kv-router-rank"] == placed[seed]
            assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 96
        assert sorted(placed.values()) == ["0", "1", "2"]


async def test_a_router_that_starts_late_gets_the_history() -> None:
    async with fleet(count=1) as workers, httpx2.AsyncClient() as direct:
        url = workers.workers[0]["url"]
        await direct.post(
            f"{url}/v1/completions", json={"model": "stand-in", "prompt": FIRST, "max_tokens": 1}
        )
        async with router([url]) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            await settled(client, FIRST, url, 192)


async def test_a_worker_without_events_is_routed_by_predictions_and_says_so() -> None:
    async with both("--no-events") as (_, _, client):
        first = await complete(client, FIRST)
        again = await complete(client, FIRST)
        assert again.headers["x-kv-router-worker"] == first.headers["x-kv-router-worker"]
        assert again.headers["x-kv-router-overlap-tokens"] == "192"
        row = (await ranks(client))[first.headers["x-kv-router-worker"]]
        assert (row["view"], row["predicted_blocks"]) == ("silent", 12)
        assert "predicted entries only" in row["why"]


async def test_settings_of_a_worker_win_over_what_it_says() -> None:
    async with fleet("--no-replay", "--topic", "kv", count=1) as workers:
        (worker,) = workers.workers
        kv = worker["ranks"][0]["kv"]
        spec = f"{worker['url']},kv={kv},topic=kv,block-size=16,engine=sglang"
        async with router([spec]) as front, httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 0)

            async def live() -> bool:
                await complete(client, FIRST)
                return bool((await ranks(client))[worker["url"]]["view"] == "live")

            await until_awaited(lambda: up(client), "the worker to join")
            await until_awaited(live, "a live view")


async def up(client: httpx2.AsyncClient) -> bool:
    return (await client.get("/ready")).status_code == 200


async def test_namespaces_never_share_a_prefix() -> None:
    async with both("--engine", "vllm", "--lora", "ad", count=1) as (_, _, client):
        await complete(client, FIRST)
        for other in ({"cache_salt": "tenant"}, {"model": "ad"}):
            answer = await complete(client, FIRST, **other)
            assert answer.headers["x-kv-router-overlap-tokens"] == "0"
            assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            again = await complete(client, FIRST, **other)
            assert again.headers["x-kv-router-overlap-tokens"] == "192"
            assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 192
