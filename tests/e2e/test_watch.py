"""The page and the stream behind it, over real processes; what a browser makes of them is in tests/page."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from router.core.weights import Weights
from tests.e2e.processes import both, router
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

KEY = "sk-0123456789"
ADMIN = "a-key-of-sixteen-characters"
PROMPT = {"model": "stand-in", "prompt": list(range(1, 100)), "max_tokens": 1}
NO_WORKER = ("--admin-key", ADMIN)


async def events(client: httpx2.AsyncClient) -> AsyncGenerator[dict[str, Any]]:
    async with client.stream("GET", "/watch") as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                yield json.loads(line[6:])


async def test_decisions_are_shown_with_their_costs_only_while_somebody_watches() -> None:
    async with both(count=2) as (_, _, client):
        await client.post("/v1/completions", json=PROMPT)
        stream = events(client)
        first = await anext(stream)
        assert first["decisions"] == []
        assert [row["state"] for row in first["workers"]] == ["ready", "ready"]
        answer = await client.post("/v1/completions", json=PROMPT, headers={"x-request-id": "mine"})
        while not (event := await anext(stream))["decisions"]:
            pass
        (one,) = event["decisions"]
        assert (one["id"], one["prompt_tokens"], one["model"]) == ("mine", 99, "stand-in")
        assert one["worker"] == answer.headers["x-kv-router-worker"]
        own, other = one["candidates"]
        assert own["cached_tokens"] + own["predicted_tokens"] == 96
        price = own["cost"] / 3
        assert price >= Weights().uncached
        assert other["cost"] == 99 * price
        assert other["terms"] == {
            "inflight": 0,
            "uncached": 99 * price,
            "load_back": 0,
            "batch": 0,
            "active": 0,
        }
        assert sum(row["answered"] for row in event["workers"]) == 2
        assert sum(row["prompt_tokens"] for row in event["workers"]) == 2 * 99
        assert sum(row["cached_tokens"] for row in event["workers"]) == 96
        await stream.aclose()


async def test_a_pair_is_shown_with_both_halves() -> None:
    options = ("--engine", "vllm")
    async with both(*options, count=2) as (workers, _, _):
        urls = [worker["url"] for worker in workers.workers]
        roles = [f"{urls[0]},role=prefill", f"{urls[1]},role=decode"]
        async with (
            router(roles) as front,
            httpx2.AsyncClient(base_url=front.url, timeout=30) as client,
        ):
            stream = events(client)
            while {row["state"] for row in (await anext(stream))["workers"]} != {"ready"}:
                pass
            assert (await client.post("/v1/completions", json=PROMPT)).status_code == 200
            while not (event := await anext(stream))["decisions"]:
                pass
            one = event["decisions"][0]
            assert one["worker"] == urls[0]
            assert one["decode"] == f"{urls[1]} rank 0"
            await stream.aclose()


async def test_several_processes_show_one_fleet_and_who_answers() -> None:
    async with both(count=1, router_options=("--processes", "2")) as (_, front, _):
        for _ in range(6):
            async with httpx2.AsyncClient(base_url=front.url, timeout=30) as other:
                assert (await other.post("/v1/completions", json=PROMPT)).status_code == 200
        async with httpx2.AsyncClient(base_url=front.url, timeout=30) as watcher:
            stream = events(watcher)
            while (event := await anext(stream))["workers"][0]["answered"] < 6:
                pass
            assert event["workers"][0]["prompt_tokens"] == 6 * 99
            assert event["process"] in {"1 of 2", "2 of 2"}
            await stream.aclose()


async def test_a_reset_is_told_with_its_time_also_to_who_comes_later() -> None:
    async with both(count=1) as (workers, _, client):
        url = workers.workers[0]["url"]
        await client.post("/v1/completions", json=PROMPT)
        before = len((await anext(events(client)))["resets"])
        async with httpx2.AsyncClient() as direct:
            await direct.post(f"{url}/flush_cache")

        async def told() -> bool:
            resets = (await anext(events(client)))["resets"]
            return len(resets) == before + 1 and resets[-1]["cause"] == "all_blocks_cleared"

        await until_awaited(told, "the reset is told")


async def test_a_router_that_stops_waits_for_nobody_who_watches() -> None:
    async with both(count=1, router_options=("--grace-seconds", "3600")) as (_, front, client):
        stream = events(client)
        await anext(stream)
        front.process.send_signal(signal.SIGTERM)
        async for _ in stream:
            pass
        await asyncio.wait_for(front.process.wait(), 30)


async def test_the_page_needs_no_key_and_what_it_shows_does() -> None:
    async with (
        router([], *NO_WORKER, "--api-key", KEY) as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        page = await client.get("/")
        assert page.status_code == 200
        policy = page.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self';")
        assert "unsafe" not in policy
        assert "http" not in page.text
        for path in ("/watch", "/explain", "/workers"):
            method = "POST" if path == "/explain" else "GET"
            assert (await client.request(method, path)).status_code == 401
        with_key = httpx2.AsyncClient(base_url=front.url, headers={"x-api-key": KEY})
        assert (await anext(events(with_key)))["workers"] == []
        await with_key.aclose()


SHOWN = [("GET", "/"), ("GET", "/page/page.js"), ("GET", "/workers"), ("GET", "/watch"), ("POST", "/explain")]
SHOWN += [("GET", "/metrics"), ("POST", "/admin/fleet/pause"), ("HEAD", "/workers")]


async def statuses(client: httpx2.AsyncClient, host: str, asked: list[tuple[str, str]]) -> set[int]:
    """Return the statuses of the heads of answers to requests with this Host."""
    found = set()
    for method, path in asked:
        async with client.stream(method, path, headers={"host": host}) as answer:
            found.add(answer.status_code)
    return found


async def test_on_this_machine_alone_the_fleet_is_not_shown_to_a_web_site_that_has_rebound_its_name() -> None:
    async with (
        router([], *NO_WORKER) as front,
        httpx2.AsyncClient(base_url=front.url) as client,
    ):
        for host in (
            "site.example",
            "site.example:8000",
            "127.0.0.1.site.example",
            "localhost.example",
            "10.0.0.1.example",
            "127.1",
            "127.0.0.1%.site.example",
        ):
            assert await statuses(client, host, SHOWN) == {403}
            for path in ("/health", "/v1/models"):  # of clients and probes, also behind a proxy
                assert (await client.get(path, headers={"host": host})).status_code == 200
        error = (await client.get("/workers", headers={"host": "site.example"})).json()["error"]
        assert (error["code"], "--allowed-host" in error["message"]) == ("host_not_allowed", True)
        refused = 7 * len(SHOWN) + 1
        metrics = (await client.get("/metrics")).text
        assert f'kv_router_errors_total{{fault="client"}} {refused}.0' in metrics
        assert f'status_class="4xx"}} {refused}.0' in metrics
        for host in ("localhost:80", "a.localhost", "LOCALHOST.", "127.9.9.9:1", "[::1]:8000", "10.0.0.1:80"):
            assert await statuses(client, host, [("GET", "/workers"), ("GET", "/watch")]) == {200}
        front.process.terminate()
        told = b"WARNING requests refused for the name that they ask by (--allowed-host): "
        await until(lambda: sum(told in line for line in front.log) == 2)
        lines = [line.partition(told)[2].strip() for line in front.log if told in line]
        assert lines[0] == b"1, from 127.0.0.1 as 'site.example' (1)"
        assert lines[1].startswith(b"%d, from 127.0.0.1 as " % (refused - 1))


@pytest.mark.parametrize(
    ("options", "status"),
    [
        (("--allowed-host", "Site.Example"), 200),
        (("--allowed-host", "other.example"), 403),
        (("--allowed-host", "*"), 200),
        (("--api-key", KEY), 401),
        (("--host", "0.0.0.0"), 200),
        (("--host", "0.0.0.0", "--allowed-host", "other.example"), 403),
    ],
)
async def test_other_names_are_those_an_operator_allows_or_all_where_others_connect_or_need_keys(
    options: tuple[str, ...], status: int
) -> None:
    async with router([], *NO_WORKER, *options) as front:
        url = front.url.replace("0.0.0.0", "127.0.0.1")
        async with httpx2.AsyncClient(base_url=url) as client:
            asked = [("GET", "/workers"), ("GET", "/watch")]
            assert await statuses(client, "site.example:8000", asked) == {status}
            for address in ("10.0.0.1:8000", "[fd00::1]:8000"):  # as Prometheus asks pods
                assert await statuses(client, address, asked) == {200 if status == 403 else status}


async def test_by_default_there_is_no_page_where_others_can_connect() -> None:
    async with router([], *NO_WORKER, "--host", "0.0.0.0") as front:
        url = front.url.replace("0.0.0.0", "127.0.0.1")
        async with httpx2.AsyncClient(base_url=url) as client:
            for path in ("/", "/page/page.js"):
                assert (await client.get(path)).status_code == 404
            assert (await anext(events(client)))["workers"] == []
            wrong = await client.post("/watch")
            assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
