"""Policies by name, by function and by header, over real sockets."""

from __future__ import annotations

import json
from typing import Any

import httpx2

from router.core.cost import POLICIES
from tests.e2e.processes import both, joined, router
from tests.e2e.stub import raw, stub
from tests.e2e.test_routing import FIRST, complete, settled

OWN = "tests.e2e.rules:last"


async def ask(client: httpx2.AsyncClient, path: str = "/v1/completions", **headers: str) -> httpx2.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    body = {"model": "stand-in", "prompt": FIRST, "max_tokens": 4}
    return await client.post(path, json=body, headers=named)


async def value(client: httpx2.AsyncClient, name: str) -> float:
    page = (await client.get("/metrics")).text
    return float(next(line.rpartition(" ")[2] for line in page.splitlines() if line.startswith(name)))


async def test_a_request_may_name_its_policy_where_that_is_allowed_and_every_policy_is_explained() -> None:
    options = ("--policy", OWN, "--allow-policy-header", "on")
    async with both("--lora", "poet", count=3, router_options=options) as (workers, _, client):
        last = max(worker["url"] for worker in workers.workers)
        for _ in range(3):
            assert (await complete(client, FIRST)).headers["x-kv-router-worker"] == last
        await settled(client, FIRST, last, 192)
        assert await value(client, "kv_router_policy_failures_total") == 0
        await complete(client, list(range(1, 14)))
        assert await value(client, "kv_router_policy_failures_total") == 1

        for name, policy in POLICIES.items():
            named = {"x_kv_router_policy": name, "x_session_id": "7"}
            explained = (await ask(client, "/explain", **named)).json()
            assert explained["policy"] == name
            costs = {row["worker"]: row["cost"] for row in explained["candidates"]}
            assert len(costs) == 3
            assert all(row["terms"] or policy.draws for row in explained["candidates"])
            answer = await ask(client, **named)
            assert answer.status_code == 200
            if not policy.draws and not policy.sample:
                least = min(cost for cost in costs.values() if cost is not None)
                assert costs[answer.headers["x-kv-router-worker"]] == least
            assert await value(client, f'kv_router_decisions_total{{policy="{name}"') == 1

        for path in ("/v1/completions", "/explain"):
            refused = await ask(client, path, x_kv_router_policy="nonsense")
            assert refused.status_code == 400
            assert refused.json()["error"]["message"].startswith("x-kv-router-policy: expected one of kv, ")
            assert OWN in refused.json()["error"]["message"]

        homes = set()
        for seed in range(6):
            poem = [seed * 20 + at for at in range(1, 21)]
            body = {"model": "stand-in:poet", "prompt": poem, "max_tokens": 1}
            answer = await client.post("/v1/completions", json=body, headers={"x-kv-router-policy": "kv"})
            homes.add(answer.headers["x-kv-router-worker"])
        assert len(homes) == 1, "the adapter is loaded at one worker, the others have to load it"

        await _where_it_is_not_allowed([worker["url"] for worker in workers.workers])


async def test_predictions_that_a_worker_keeps_missing_count_less_there() -> None:
    usage = {"prompt_tokens": len(FIRST), "prompt_tokens_details": {"cached_tokens": 0}}
    async with stub() as worker, router([worker.url]) as front:
        worker.answer = raw(200, json.dumps({"id": "x", "usage": usage}).encode())
        async with httpx2.AsyncClient(base_url=front.url) as client:
            await joined(client, 1)
            for _ in range(6):
                await complete(client, FIRST)
            (row,) = (await client.get("/workers")).json()["workers"]
            assert 0.5 < row["ranks"][0]["prediction_trust"] < 0.7
            explained = (await ask(client, "/explain")).json()["candidates"][0]
            assert explained["predicted_tokens"] == 192
            assert explained["terms"]["uncached"] > 3 * (8 + 0.3 * 192)


async def _where_it_is_not_allowed(workers: list[str]) -> None:
    """Ask another router in front of the same workers, that goes by sessions."""
    options = ("--policy", "session", "--session-header", "X-Conversation")
    async with router(workers, *options) as front, httpx2.AsyncClient(base_url=front.url) as client:
        await joined(client, len(workers))
        for name in ("random", "nonsense"):
            explained: dict[str, Any] = (await ask(client, "/explain", x_kv_router_policy=name)).json()
            assert explained["policy"] == "session"
        homes = set()
        for session in range(12):
            answers = [await ask(client, x_conversation=str(session)) for _ in range(2)]
            (home,) = {answer.headers["x-kv-router-worker"] for answer in answers}
            homes.add(home)
        assert len(homes) > 1
