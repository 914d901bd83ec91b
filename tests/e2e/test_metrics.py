"""What Prometheus sees of real traffic is what has happened."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
from prometheus_client.parser import text_string_to_metric_families

from tests.e2e.processes import both
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from tests.e2e.processes import Running

PROMPT = [index % 250 + 1 for index in range(64)]


class Scraped:
    """One scrape."""

    def __init__(self, text: str) -> None:
        self._samples = [
            sample for family in text_string_to_metric_families(text) for sample in family.samples
        ]

    def sum(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of this name that have these labels."""
        found = [s for s in self._samples if s.name == f"kv_router_{name}"]
        return sum(s.value for s in found if labels.items() <= s.labels.items())

    def values(self, name: str, label: str) -> dict[str, float]:
        """Return the values of a metric by one label."""
        found = [s for s in self._samples if s.name == f"kv_router_{name}"]
        return {s.labels[label]: s.value for s in found}


async def scrape(client: httpx2.AsyncClient) -> Scraped:
    return Scraped((await client.get("/metrics")).text)


async def ask(client: httpx2.AsyncClient, **fields: Any) -> httpx2.Response:
    body = {"model": "stand-in", "prompt": PROMPT, "max_tokens": 8} | fields
    return await client.post("/v1/completions", json=body)


async def test_streams_are_timed_by_the_tokens_that_the_engine_tells_or_else_by_pieces() -> None:
    async with both(count=1) as (_, _, client):
        await ask(client)
        await ask(client, stream=True, stream_options={"include_usage": True})
        await ask(client, stream=True)
        found = await scrape(client)
        assert found.sum("time_to_first_token_seconds_count", model="stand-in") == 2
        assert found.sum("inter_token_seconds_count", counted="tokens") == 1
        assert found.sum("inter_token_seconds_count", counted="pieces") == 1
        assert 0 < found.sum("inter_token_seconds_sum") < found.sum("request_seconds_sum")
        assert found.sum("generated_tokens_total", model="stand-in") == 16
        assert found.sum("request_seconds_count", model="stand-in") == 3
        for stage in ("parse", "tokenize", "hash", "match", "choose"):
            assert found.sum("stage_seconds_count", stage=stage) == 3, stage
        assert found.sum("stage_seconds_count", stage="connect") >= 1
        assert found.sum("stage_seconds_count", stage="wait") == 0


async def test_models_have_labels_of_their_own_only_where_a_worker_serves_them() -> None:
    options = ("--max-inflight", "1", "--queue-size", "7")
    async with both(count=1, router_options=options) as (_, _, client):
        for number in range(5):
            assert (await ask(client, model=f"made-up-{number}")).status_code == 404
        await client.post("/v1/completions", content=b"{")
        found = await scrape(client)
        assert found.values("requests_total", "model") == {"other": 6}
        assert found.values("model_ready", "model") == {"stand-in": 1}
        assert (await ask(client)).status_code == 200
        found = await scrape(client)
        assert found.values("waiting_requests", "model") == {"stand-in": 0, "other": 0}
        assert found.sum("queue_limit_requests") == 7
        assert found.sum("requests_total", model="stand-in") == 1


async def test_saved_and_checked_tokens_are_those_of_the_answers() -> None:
    async with both("--engine", "vllm", count=1) as (_, _, client):
        await ask(client)
        await ask(client)
        found = await scrape(client)
        assert found.sum("prompt_tokens_total") == found.sum("checked_prompt_tokens_total") == 128
        assert found.sum("saved_tokens_total") == found.sum("cached_tokens_total") == 48
        assert found.sum("checked_overlap_tokens_total") == found.sum("overlap_tokens_total") == 48
        assert 0 <= found.sum("event_lag_seconds") < 30
        assert found.sum("longest_event_lag_seconds") >= found.sum("shortest_event_lag_seconds")
        for accept in ("text/plain", "application/openmetrics-text"):
            reply = await client.get("/metrics", headers={"accept": f"{accept},*/*;q=0.1"})
            assert reply.headers["content-type"].startswith(accept)
            assert "process_resident_memory_bytes" in reply.text


async def test_blocks_by_tier_are_those_that_the_worker_holds() -> None:
    """More prompts than the device holds, so that HiCache moves blocks to the host."""
    async with both("--tier", "host=8x", "--capacity-tokens", "512", count=1) as (workers, _, client):
        for number in range(12):
            await ask(client, prompt=[number * 64 + at + 1 for at in range(64)])

        async def agree() -> bool:
            return (await scrape(client)).values("blocks", "tier") == await held(workers)

        await until_awaited(agree, "the blocks of every tier")
        tiers = await held(workers)
        assert tiers["CPU_PINNED"] > tiers["GPU"] > 0


async def held(workers: Running) -> dict[str, int]:
    async with httpx2.AsyncClient() as direct:
        (rank,) = (await direct.get(f"{workers.workers[0]['url']}/_truth")).json()["ranks"]
    return {tier: len(blocks) for tier, blocks in rank["tiers"].items()}
