"""The admin routes over real processes: only with the key, and weight syncs under load lose nothing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.processes import MODES, both

if TYPE_CHECKING:
    import httpx2

KEY = "a-key-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {KEY}"}
WITH_KEY = ("--admin-key", KEY)
SYNCS = 20


def prompt(number: int) -> list[int]:
    return [(number * 31 + index) % 250 + 1 for index in range(100)]


async def complete(client: httpx2.AsyncClient, number: int) -> tuple[int, int]:
    """Return what was expected to be cached, and what the engine then reported."""
    body = {"model": "stand-in", "prompt": prompt(number), "max_tokens": 4}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return int(answer.headers["x-kv-router-overlap-tokens"]), cached


async def test_without_a_key_the_routes_do_not_exist_and_with_one_it_is_needed() -> None:
    async with both(count=1) as (_, _, client):
        assert (await client.post("/admin/fleet/flush", headers=BEARER)).status_code == 404
    async with both(count=1, router_options=WITH_KEY) as (_, _, client):
        for headers in ({}, {"authorization": "Bearer wrong"}, {"authorization": KEY}):
            answer = await client.post("/admin/fleet/flush", headers=headers)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "invalid_api_key"
        assert (await client.post("/admin/fleet/flush", headers=BEARER)).json()["ok"] is True


async def test_one_worker_is_named_by_its_url_with_or_without_scheme() -> None:
    async with both(count=2, router_options=WITH_KEY) as (workers, _, client):
        url = workers.workers[0]["url"]
        for name in (url, url.removeprefix("http://")):
            answer = await client.post(f"/admin/workers/{name}/flush", headers=BEARER)
            assert list(answer.json()["workers"]) == [url]
        unknown = await client.post("/admin/workers/http://nowhere:1/flush", headers=BEARER)
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "worker_not_found")


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/admin/fleet/explode", b"", "action"),
        ("/admin/fleet/flush", b"[]", None),
        ("/admin/weight_sync", b'{"max_paused": 0}', "max_paused"),
        ("/admin/weight_sync", b'{"workers": "all"}', "workers"),
        ("/admin/weight_sync", b'{"flush": "yes"}', "flush"),
        ("/admin/weight_sync", b'{"update": 1}', "update"),
    ],
)
async def test_bad_calls_name_the_field(path: str, body: bytes, param: str | None) -> None:
    async with both(count=1, router_options=WITH_KEY) as (_, _, client):
        answer = await client.post(path, content=body, headers=BEARER)
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_no_answer_shows_the_user_of_a_url() -> None:
    url = "http://user:word@10.0.0.1:1"
    calls: list[tuple[str, str, Any]] = [
        ("POST", "/admin/workers", {"url": url}),
        ("POST", "/admin/workers", {"url": "http://10.0.0.1:1", "kv": "tcp://user:word@10.0.0.1:1"}),
        ("POST", f"/admin/workers/{url}/flush", None),
        ("DELETE", f"/admin/workers/{url}", None),
        ("POST", "/admin/weight_sync", {"workers": [url]}),
    ]
    options = (*WITH_KEY, "--worker-allow", "10.0.0.0/8")
    async with both(count=1, router_options=options) as (_, front, client):
        for method, path, body in calls:
            answer = await client.request(method, path, json=body, headers=BEARER)
            assert answer.status_code in {400, 404}, path
            assert "***@" in answer.text, path
            assert "word" not in answer.text
    assert b"word" not in b"".join(front.log)


@pytest.mark.parametrize("options", MODES, ids=" ".join)
async def test_syncs_under_load_lose_no_request_and_leave_views_that_are_right(
    options: tuple[str, ...],
) -> None:
    async with both(*options, count=2, router_options=WITH_KEY) as (_, _, client):
        stop = asyncio.Event()
        seen: list[tuple[int, int]] = []

        async def load(user: int) -> None:
            number = 0
            while not stop.is_set():
                seen.append(await complete(client, user * 3 + number % 3))
                number += 1

        users = [asyncio.create_task(load(user)) for user in range(4)]
        for sync in range(SYNCS):
            body: dict[str, Any] = {"max_paused": 1 + sync % 2}
            answer = await client.post("/admin/weight_sync", json=body, headers=BEARER)
            assert answer.json()["ok"] is True, answer.text
        stop.set()
        await asyncio.gather(*users)
        # The last prompts are still held: routing by overlap works as before.
        await complete(client, 100)
        assert await complete(client, 100) == (96, 96)
        assert len(seen) > SYNCS
