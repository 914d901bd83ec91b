from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.workers.edge import one, until
from workers.engine.hicache import TierConfig

CAPTURE = Path(__file__).parents[2] / "fixtures" / "captures" / "vllm_0.32.0_http.jsonl"
PROMPT = list(range(70))


def _captured(path: str) -> dict[str, Any]:
    """Return the real engine's first record of a route."""
    records = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    record: dict[str, Any] = next(record for record in records if record["path"] == path)
    return record


def _types(events: list[Any]) -> list[str]:
    return [event["type"] for event in events]


@pytest.mark.parametrize(
    "path",
    [
        "/version",
        "/is_paused",
        "/is_sleeping",
        "/weight_info",
        "/load",
        "/health",
        "/ping",
        "/pause?mode=bogus",
        "/pause?mode=keep",
        "/resume",
        "/sleep?level=1",
        "/sleep?level=0",
        "/wake_up",
        "/reset_prefix_cache",
    ],
)
async def test_a_route_answers_as_the_real_engine_did(path: str) -> None:
    record = _captured(path)
    async with one(engine="vllm") as edge:
        answer = await edge.client.request(record["method"], edge.worker.url + path)
        assert answer.status_code == record["status"]
        assert (answer.json() if answer.text else "") == record["response"]


async def test_an_unknown_model_is_refused_in_the_words_of_the_real_engine() -> None:
    records = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    record = next(record for record in records if record["status"] == 404)
    async with one(engine="vllm", model="tiny") as edge:
        answer = await edge.post("/v1/completions", record["body"])
        assert (answer.status_code, answer.json()) == (404, record["response"])


async def test_a_prompt_too_long_is_refused_in_the_words_of_the_real_engine() -> None:
    records = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    record = next(record for record in records if "maximum context" in str(record["response"]))
    async with one(engine="vllm", model="tiny", max_model_len=2048) as edge:
        answer = await edge.post("/v1/completions", record["body"])
        assert (answer.status_code, answer.json()) == (400, record["response"])


async def test_event_sources_have_the_fields_of_the_real_engine_for_every_rank() -> None:
    async with one(engine="vllm", dp=2) as edge:
        sources = (await edge.get("/kv_event_sources")).json()
        assert list(sources) == ["0", "1"]
        assert list(sources["1"]) == list(_captured("/kv_event_sources")["response"]["0"])
        ranks = edge.worker.describe()["ranks"]
        assert sources["1"]["endpoint"].rsplit(":", 1)[1] == ranks[1]["kv"].rsplit(":", 1)[1]
    async with one(engine="vllm", events=None) as edge:
        assert (await edge.get("/kv_event_sources")).json()["0"]["enable_kv_cache_events"] is False


async def test_models_and_usage_have_the_fields_of_the_real_engine() -> None:
    async with one(engine="vllm", model="tiny", page_size=32) as edge:
        model = (await edge.get("/v1/models")).json()["data"][0]
        assert list(model) == list(_captured("/v1/models")["response"]["data"][0])
        assert model["root"] == edge.worker.edge.tokenizer.path
        usage = (await edge.complete(PROMPT))["usage"]
        real = _captured("/v1/completions")["response"]["usage"]
        assert list(usage) == list(real)
        assert list(usage["prompt_tokens_details"]) == list(real["prompt_tokens_details"])


async def test_metrics_carry_the_start_of_the_process_where_there_is_one_front_end() -> None:
    for dp in (1, 2):
        async with one(engine="vllm", dp=dp) as edge:
            metrics = (await edge.get("/metrics")).text
            assert (f"process_start_time_seconds {edge.worker.edge.started}" in metrics) is (dp == 1)
            assert ("process_start_time_seconds" in metrics) is (dp == 1)


async def test_metrics_carry_the_block_size_of_every_rank() -> None:
    async with one(engine="vllm", page_size=32, dp=2) as edge:
        metrics = (await edge.get("/metrics")).text
        assert 'vllm:cache_config_info{block_size="32",enable_prefix_caching="True",engine="1"' in metrics
        assert 'vllm:engine_sleep_state{engine="0",model_name="stand-in",sleep_state="awake"} 1.0' in metrics
        await edge.post("/sleep?level=1")
        metrics = (await edge.get("/metrics")).text
        assert 'model_name="stand-in",sleep_state="weights_offloaded"} 1.0' in metrics


async def test_metrics_count_what_was_preempted_for_want_of_blocks() -> None:
    async with one(engine="vllm", capacity_tokens=512) as edge:
        prompts = [list(range(first, first + 20)) for first in range(0, 10_000, 1000)]
        answers = await asyncio.gather(*(edge.complete(prompt, 60) for prompt in prompts))
        assert [answer["usage"]["completion_tokens"] for answer in answers] == [60] * 10
        preempted = edge.worker.drivers[0].rank.counters.retracted
        assert preempted > 0
        name = 'vllm:num_preemptions_total{engine="0",model_name="stand-in"}'
        assert f"{name} {float(preempted)}\n" in (await edge.get("/metrics")).text


async def test_tokenize_gives_the_ids_of_a_prompt_or_a_chat() -> None:
    async with one(engine="vllm") as edge:
        prompt = (await edge.post("/tokenize", {"prompt": "hi"})).json()
        assert prompt == {"count": 2, "max_model_len": 131_072, "tokens": [104, 105], "token_strs": None}
        messages = [{"role": "user", "content": "hi"}]
        chat = (await edge.post("/tokenize", {"messages": messages})).json()
        answer = (await edge.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})).json()
        assert chat["count"] == answer["usage"]["prompt_tokens"]
        assert (await edge.post("/tokenize", {})).status_code == 400


async def test_a_reset_of_an_idle_engine_is_published_with_the_next_request() -> None:
    async with one(engine="vllm", page_size=32) as edge:
        await edge.complete(PROMPT)
        assert (await edge.post("/reset_prefix_cache")).json() == {"success": True}
        assert (await edge.truth())["blocks"] == []
        assert _types(await edge.events()) == ["BlockStored"]
        await edge.complete([1])
        assert _types(await edge.events(start=1)) == ["AllBlocksCleared"]


async def test_a_pause_clears_holds_the_event_and_lets_requests_hang() -> None:
    async with one(engine="vllm", page_size=32) as edge:
        await edge.complete(PROMPT)
        await edge.post("/pause")
        assert (await edge.get("/is_paused")).json() == {"is_paused": True}
        assert (await edge.get("/is_sleeping")).json() == {"is_sleeping": True}
        assert (await edge.get("/health")).status_code == 200
        task = asyncio.create_task(edge.complete(PROMPT))
        await until(lambda: len(edge.worker.drivers[0].rank.waiting) == 1)
        assert len(await edge.batches()) == 1
        await edge.post("/resume")
        assert (await task)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert _types(await edge.events(start=1)) == ["AllBlocksCleared", "BlockStored"]


async def test_keeping_without_a_clear_keeps_requests_and_cache() -> None:
    async with one(engine="vllm") as edge:
        task = asyncio.create_task(edge.complete(PROMPT, 300))
        await until(lambda: edge.worker.drivers[0].rank.running != [])
        await edge.post("/pause?mode=keep&clear_cache=false")
        before = await edge.truth()
        assert (before["running"], before["paused"]) == (1, True)
        await edge.post("/resume")
        assert (await task)["usage"]["completion_tokens"] == 300
        assert "AllBlocksCleared" not in _types(await edge.events())


async def test_keeping_with_a_clear_starts_requests_again() -> None:
    async with one(engine="vllm") as edge:
        task = asyncio.create_task(edge.complete(PROMPT, 300))
        await until(lambda: edge.worker.drivers[0].rank.running != [])
        await edge.post("/pause?mode=keep")
        assert (await edge.truth())["waiting"] == 1
        await edge.post("/resume")
        assert (await task)["usage"]["completion_tokens"] == 300


async def test_waiting_lets_requests_end_and_aborting_ends_them() -> None:
    async with one(engine="vllm") as edge:
        task = asyncio.create_task(edge.complete(PROMPT, 300))
        await until(lambda: edge.worker.drivers[0].rank.running != [])
        await edge.post("/pause?mode=wait")
        assert (await task)["choices"][0]["finish_reason"] == "length"
        await edge.post("/resume")
    async with one(engine="vllm", profile="8b-h100") as edge:
        task = asyncio.create_task(edge.complete(PROMPT, 100_000))
        await until(lambda: edge.worker.drivers[0].rank.running != [])
        await edge.post("/pause?mode=abort")
        assert (await task)["choices"][0]["finish_reason"] == "abort"


async def test_sleep_drops_the_cache_from_level_1_on() -> None:
    async with one(engine="vllm") as edge:
        await edge.complete(PROMPT)
        await edge.post("/sleep?level=0")
        assert (await edge.truth())["blocks"] != []
        assert (await edge.post("/wake_up")).json() == {"status": "awake", "tags": None}
        await edge.post("/sleep")
        assert (await edge.truth())["blocks"] == []
        assert (await edge.post("/sleep?level=9")).status_code == 400
        await edge.post("/wake_up")
        assert await edge.cached(PROMPT) == 0


async def test_a_reset_is_refused_while_requests_run_unless_they_may_start_again() -> None:
    async with one(engine="vllm", profile="8b-h100") as edge:
        task = asyncio.create_task(edge.complete(PROMPT, 40))
        await until(lambda: edge.worker.drivers[0].rank.running != [])
        assert (await edge.post("/reset_prefix_cache")).json() == {"success": False}
        forced = await edge.post("/reset_prefix_cache?reset_running_requests=true")
        assert forced.json() == {"success": True}
        assert (await task)["usage"]["completion_tokens"] == 40


async def test_hashes_on_the_wire_may_be_bytes() -> None:
    async with one(engine="vllm", hash_form="bytes") as edge:
        await edge.complete(PROMPT)
        stored = (await edge.events())[0]
        assert [len(block) for block in stored["block_hashes"]] == [32] * 4
        assert (await edge.truth())["blocks"] == [block.hex() for block in stored["block_hashes"]]


async def test_a_hit_is_announced_again_for_who_asks() -> None:
    async with one(engine="vllm") as edge:
        await edge.complete(PROMPT)
        await edge.complete(PROMPT, vllm_xargs={"kv_cache_report_mode": "full"})
        stored = [event["block_hashes"] for event in await edge.events()]
        assert stored == [stored[0]] * 2
        assert len((await edge.truth())["tiers"]["GPU"]) == 4


@pytest.mark.parametrize("fields", [{"prompt_logprobs": 1}, {"echo": True, "logprobs": 1}])
async def test_prompt_logprobs_do_not_read_the_cache(fields: dict[str, Any]) -> None:
    async with one(engine="vllm") as edge:
        await edge.complete(PROMPT)
        assert await edge.cached(PROMPT, **fields) == 0
        truth = await edge.truth()
        assert (len(truth["blocks"]), len(truth["tiers"]["GPU"])) == (4, 8)
        assert await edge.cached(PROMPT, echo=True) == 64
        assert await edge.cached(PROMPT, logprobs=1) == 64


async def test_three_equal_answers_made_at_once_are_three_copies() -> None:
    async with one(engine="vllm") as edge:
        await asyncio.gather(*(edge.complete([1, 2], 40) for _ in range(3)))
        truth = await edge.truth()
        assert (len(truth["blocks"]), len(truth["tiers"]["GPU"])) == (2, 6)
        named = [block for event in await edge.events() for block in event["block_hashes"]]
        assert sorted(named) == sorted(truth["tiers"]["GPU"])


async def test_each_sleep_level_has_a_state_of_its_own() -> None:
    async with one(engine="vllm") as edge:
        for level, state in (("0", "awake"), ("1", "weights_offloaded"), ("2", "discard_all")):
            await edge.post(f"/sleep?level={level}")
            metrics = (await edge.get("/metrics")).text
            assert f'sleep_state="{state}"}} 1.0' in metrics
            await edge.post("/wake_up")


async def test_an_offload_connector_announces_placeholders() -> None:
    async with one(engine="vllm", tiers=TierConfig(host=4.0)) as edge:
        await edge.complete(PROMPT, 40)
        await edge.complete([1], 2)
        offloaded = [event for event in await edge.events() if event["medium"] == "CPU"]
        assert offloaded[0]["token_ids"] == []
        assert (offloaded[0]["block_size"], offloaded[0]["parent_block_hash"]) == (0, None)
