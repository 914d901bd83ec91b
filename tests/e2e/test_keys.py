"""Clients' keys over real processes: what needs one, what workers see of them, what is limited."""

from __future__ import annotations

import signal
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2
import pytest

from tests.e2e.processes import Running, joined, router
from tests.e2e.scripted import engine_up, posts
from tests.proxy.scripted import Worker, answer, plays
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

KEY = "sk-0123456789"
BEARER = {"authorization": f"Bearer {KEY}"}
BODY = b'{"model": "stand-in", "prompt": [1, 2, 3]}'
OK = plays(answer(b"{}"))
PROTECTED = [
    ("POST", "/v1/completions"),
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", "/generate"),
    ("POST", "/explain"),
    ("GET", "/v1/models"),
    ("GET", "/workers"),
    ("GET", "/nowhere"),
    ("GET", "/v1/completions"),
    ("HEAD", "/workers"),
    ("OPTIONS", "/v1/completions"),
]


@asynccontextmanager
async def front(*options: str) -> AsyncIterator[tuple[Worker, Running, httpx2.AsyncClient]]:
    """Run the router in front of a worker; the client has the key."""
    async with (
        engine_up(OK) as worker,
        router([worker.url], *options) as process,
        httpx2.AsyncClient(base_url=process.url, headers=BEARER) as client,
    ):
        await joined(client, 1)
        yield worker, process, client


async def test_what_carries_prompts_or_shows_the_fleet_needs_a_key() -> None:
    async with front("--api-key", KEY) as (worker, process, client):
        async with httpx2.AsyncClient(base_url=process.url) as stranger:
            for wrong in ({}, {"authorization": f"Bearer {KEY}x"}, {"x-api-key": "wrong-key"}):
                for method, path in PROTECTED:
                    got = await stranger.request(method, path, content=BODY, headers=wrong)
                    assert got.status_code == 401, (method, path)
                    assert got.headers["www-authenticate"] == "Bearer"
                    if method != "HEAD":
                        assert got.json()["error"]["code"] == "invalid_api_key"
                        assert got.json()["error"]["type"] == "authentication_error"
            for path in ("/health", "/ready", "/metrics", "/openapi.json"):
                assert (await stranger.get(path)).status_code == 200
            assert not posts(worker)
            by_other_name = {"x-api-key": KEY}
            assert (await stranger.get("/v1/models", headers=by_other_name)).status_code == 200
        assert (await client.post("/v1/completions", content=BODY)).status_code == 200


async def test_wrong_keys_leave_one_line_and_one_at_the_stop_and_are_in_none() -> None:
    async with front("--api-key", KEY, "--admin-key", "a-key-of-sixteen-characters") as (_, process, client):
        wrong = {"authorization": "Bearer guess-1234"}
        for _ in range(3):
            for path in ("/v1/completions", "/nowhere", "/admin/fleet/flush"):
                got = await client.post(path, content=BODY, headers=wrong)
                assert got.status_code == 401, path
            assert (await client.get("/workers", headers=wrong)).status_code == 401
        process.process.terminate()
        await until(lambda: sum(b" of a valid " in line for line in process.log) == 4)
    said = [line for line in process.log if b" WARNING requests refused for want of a valid " in line]
    found = sorted(line.rpartition(b"valid ")[2].decode().strip() for line in said)
    assert found == [
        "admin key: 1, from 127.0.0.1 (1)",
        "admin key: 2, from 127.0.0.1 (2)",  # as it stopped
        "client's key: 1, from 127.0.0.1 (1)",
        "client's key: 8, from 127.0.0.1 (8)",
    ]
    assert b"guess" not in b"".join(process.log)


async def test_metrics_can_need_a_key_too_and_never_hold_one() -> None:
    async with front("--api-key", KEY, "--protect-metrics", "on") as (_, process, client):
        async with httpx2.AsyncClient(base_url=process.url) as stranger:
            assert (await stranger.get("/metrics")).status_code == 401
        await client.post("/v1/completions", content=BODY)
        text = (await client.get("/metrics")).text
        assert 'kv_router_client_requests_total{client="",outcome="refused"} 1.0' in text
        assert KEY not in text


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ((), KEY),  # whose keys they are is none of the router's business
        (("--api-key", KEY), None),
        (("--api-key", KEY, "--forward-authorization", "on"), KEY),
    ],
)
async def test_a_worker_sees_a_clients_key_only_if_it_is_to(
    options: tuple[str, ...], seen: str | None
) -> None:
    async with front(*options) as (worker, _, client):
        await client.post("/v1/completions", content=BODY, headers={"x-api-key": KEY})
        head = posts(worker)[0][0]
        assert (f"authorization: Bearer {seen}".encode() in head) is (seen is not None)
        assert (f"x-api-key: {seen}".encode() in head) is (seen is not None)
        assert (KEY.encode() in head) is (seen is not None)


async def test_rates_are_those_of_the_key(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(
        f"{KEY} name=free\n"
        "sk-limited-one name=slow requests-per-second=0.01 burst=2\n"
        "sk-limited-two name=short prompt-tokens-per-minute=4\n"
    )
    async with front("--api-keys", str(keys)) as (worker, _, client):

        async def statuses(key: str, times: int) -> list[int]:
            headers = {"authorization": f"Bearer {key}"}
            answers = [
                await client.post("/v1/completions", content=BODY, headers=headers) for _ in range(times)
            ]
            for one in answers:
                if one.status_code == 429:
                    assert int(one.headers["retry-after"]) >= 1
                    assert one.json()["error"]["code"] == "rate_limit_exceeded"
                    assert one.json()["error"]["type"] == "rate_limit_error"
            return [one.status_code for one in answers]

        assert await statuses("sk-limited-one", 4) == [200, 200, 429, 429]
        assert await statuses("sk-limited-two", 2) == [200, 429]
        assert await statuses(KEY, 5) == [200] * 5
        assert len(posts(worker)) == 8
        text = (await client.get("/metrics")).text
        assert 'kv_router_client_requests_total{client="slow",outcome="limited"} 2.0' in text
        assert 'kv_router_client_requests_total{client="free",outcome="admitted"}' in text
        rows = (await client.get("/workers")).json()["workers"]
        assert sum(row["inflight_requests"] for row in rows) == 0


@pytest.mark.parametrize("told", [True, False])
async def test_a_key_is_taken_away_while_the_router_runs(tmp_path: Path, *, told: bool) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"{KEY} name=first\nsk-to-be-taken\n")
    taken = {"authorization": "Bearer sk-to-be-taken"}
    async with front("--api-keys", str(keys)) as (_, process, client):
        assert (await client.get("/workers", headers=taken)).status_code == 200
        keys.write_text(f"{KEY} name=first\n")
        if told:
            process.process.send_signal(signal.SIGHUP)

        async def gone() -> bool:
            return (await client.get("/workers", headers=taken)).status_code == 401

        await until_awaited(gone, "the key was taken away")
        assert (await client.get("/workers")).status_code == 200


async def test_a_hangup_without_anything_to_read_again_changes_nothing() -> None:
    async with front() as (_, process, client):
        process.process.send_signal(signal.SIGHUP)
        for _ in range(3):
            assert (await client.get("/health")).status_code == 200


async def test_the_admin_key_is_given_as_clients_give_theirs() -> None:
    key = "a-key-of-sixteen-characters"
    ways = [{"authorization": f"{scheme} {key}"} for scheme in ("Bearer", "bearer", "BEARER")]
    async with front("--admin-key", key) as (_, _, client):
        for given in (*ways, {"x-api-key": key}):
            got = await client.post("/admin/fleet/nothing", headers=given)
            assert got.status_code == 400, given
        for wrong in ({"authorization": key}, {"authorization": f"Basic {key}"}, {"x-api-key": f"{key}x"}):
            assert (await client.post("/admin/fleet/nothing", headers=wrong)).status_code == 401, wrong
