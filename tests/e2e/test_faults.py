"""Every fault of an engine, over real sockets: what is seen of it, and that the view is right afterwards."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.e2e.processes import both, joined
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import Sequence

# A cache of 60 blocks: the prompts below, of 10 blocks each, evict one another.
SMALL = ("--capacity-tokens", "960")
QUICK = ("--replay-seconds", "0.3")


def prompt(number: int) -> list[int]:
    return [(number * 37 + index) % 250 + 1 for index in range(165)]


async def complete(client: httpx2.AsyncClient, number: int) -> tuple[int, int]:
    """Return the expected and the reported number of cached tokens."""
    body = {"model": "stand-in", "prompt": prompt(number), "max_tokens": 2}
    answer = await client.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    cached = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return int(answer.headers["x-kv-router-overlap-tokens"]), cached


async def rank_row(client: httpx2.AsyncClient) -> dict[str, Any]:
    row: dict[str, Any] = (await client.get("/workers")).json()["workers"][0]["ranks"][0]
    return row


async def faults(worker: str, **plan: Any) -> None:
    async with httpx2.AsyncClient() as direct:
        answer = await direct.post(f"{worker}/_faults", json=plan)
        assert answer.status_code == 200, answer.text


async def truth(worker: str) -> int:
    async with httpx2.AsyncClient() as direct:
        return len((await direct.get(f"{worker}/_truth")).json()["ranks"][0]["blocks"])


async def right(client: httpx2.AsyncClient, worker: str) -> None:
    """Wait until the view is live and holds exactly what the worker holds, and score by it."""

    async def exact() -> bool:
        await complete(client, 99)
        row = await rank_row(client)
        return bool(row["view"] == "live" and row["blocks"].get("GPU", 0) == await truth(worker))

    await until_awaited(exact, "an exact view")
    for number in (98, 98, 99):
        await complete(client, number)
    expected, cached = await complete(client, 98)
    assert expected == cached == 160


async def traffic(client: httpx2.AsyncClient, requests: int = 24) -> None:
    for number in range(requests):
        await complete(client, number % 9)


@pytest.mark.parametrize(
    ("plan", "counted"),
    [
        ({"lose": 0.4}, "gaps"),
        ({"duplicate": 0.5}, None),
        ({"reorder": 0.4}, "gaps"),
        ({"delay": 0.3, "delay_seconds": 0.05}, None),
        ({"bad_event": 0.5}, "undecodable"),
        ({"bad_batch": 0.4}, "undecodable"),
        ({"lose": 0.4, "replay": "legacy"}, "gaps"),
        ({"lose": 0.4, "replay": "no_end"}, "gaps"),
        ({"burst": 20_000}, None),
    ],
    ids=str,
)
async def test_what_a_replay_can_fill_leaves_no_trace(plan: dict[str, Any], counted: str | None) -> None:
    async with both(*SMALL, count=1, router_options=QUICK) as (workers, _, client):
        url = workers.workers[0]["url"]
        await faults(url, **plan)
        await traffic(client)
        await faults(url)
        await right(client, url)
        row = await rank_row(client)
        assert counted is None or row[counted] > 0
        assert set(row["resets"]) <= {"all_blocks_cleared", "rebuild"}


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        (("--no-replay",), {"lose": 0.4}),
        (("--no-replay",), {"hole": 0.4}),
        ((), {"hole": 0.4}),
        ((), {"lose": 0.4, "replay": "hangs"}),
        ((), {"lose": 0.4, "replay": "short"}),
    ],
    ids=str,
)
async def test_what_is_lost_for_good_degrades_the_view_until_a_clear(
    options: Sequence[str], plan: dict[str, Any]
) -> None:
    async with both(*SMALL, *options, count=1, router_options=QUICK) as (workers, _, client):
        url = workers.workers[0]["url"]
        await traffic(client, 6)
        await faults(url, **plan)

        await traffic(client)
        # No more losses, so that the view comes to rest; what is lost stays lost.
        await faults(url, replay=plan.get("replay", "whole"))

        async def degraded() -> bool:
            row = await rank_row(client)
            return row["view"] == "degraded" and "lost" in row["why"] and row["gaps"] > 0

        await until_awaited(degraded, "a degraded view")
        metrics = (await client.get("/metrics")).text
        assert f'kv_router_view_state{{rank="0",state="degraded",worker="{url}"}} 1.0' in metrics
        await faults(url)
        async with httpx2.AsyncClient() as direct:
            await direct.post(f"{url}/flush_cache")
        await right(client, url)


@pytest.mark.parametrize("options", [(), ("--no-replay",)], ids=str)
@pytest.mark.parametrize("lost", [0, 3])
async def test_a_restart_on_the_same_ports_starts_the_view_anew(options: Sequence[str], lost: int) -> None:
    async with both(*SMALL, *options, count=1, router_options=QUICK) as (workers, _, client):
        url = workers.workers[0]["url"]
        await traffic(client)
        await faults(url, restart=True, lose_first=lost)

        async def restarted() -> bool:
            row = await rank_row(client)
            return bool(row["resets"].get("restart", 0) >= 1)

        await until_awaited(lambda: answered(client), "an answer")
        await until_awaited(restarted, "the restart to be seen")
        await faults(url)
        # The first batch may have come before the router was connected again, which nothing brings back.
        if options and (lost or (await rank_row(client))["view"] != "live"):
            async with httpx2.AsyncClient() as direct:
                await direct.post(f"{url}/flush_cache")
        await right(client, url)


async def answered(client: httpx2.AsyncClient) -> bool:
    answer = await client.post(
        "/v1/completions", json={"model": "stand-in", "prompt": prompt(1), "max_tokens": 2}
    )
    return answer.status_code == 200


@pytest.mark.parametrize("plan", [{"dead": True}, {"late": 0.5}], ids=str)
async def test_a_publisher_that_is_gone_is_named_and_its_history_fills_the_hole(
    plan: dict[str, Any],
) -> None:
    async with both(*SMALL, count=1, router_options=QUICK) as (workers, _, client):
        url = workers.workers[0]["url"]
        await traffic(client, 6)
        await faults(url, **plan)

        async def gone() -> bool:
            row = await rank_row(client)
            return row["view"] == "connecting" and "was lost" in row["why"]

        await until_awaited(gone, "the loss to be seen")
        await traffic(client)
        await faults(url)
        await right(client, url)


async def test_a_publisher_that_says_nothing_is_silent_with_the_likely_causes_and_claims_nothing() -> None:
    async with both(*SMALL, "--no-replay", count=1) as (workers, _, client):
        url = workers.workers[0]["url"]
        await traffic(client, 6)
        await faults(url, silent=True)

        async def silent() -> bool:
            await traffic(client, 9)
            row = await rank_row(client)
            return bool(row["view"] == "silent")

        await until_awaited(silent, "silence")
        row = await rank_row(client)
        assert "topic" in row["why"]
        assert row["blocks"] == {}
        assert row["resets"]["silent"] == 1


async def test_a_refused_connection_means_another_worker() -> None:
    async with both(count=2) as (workers, _, client):
        await faults(workers.workers[0]["url"], refuse=2.0)
        await traffic(client, 12)


@pytest.mark.parametrize("plan", [{"slow": 30.0}, {"half_open": 3.0}], ids=str)
async def test_an_answer_that_does_not_begin_in_time_means_another_worker(plan: dict[str, Any]) -> None:
    async with both(count=2, router_options=("--first-byte-seconds", "0.3")) as (workers, _, client):
        await faults(workers.workers[0]["url"], **plan)
        await traffic(client, 8)


@pytest.mark.parametrize(
    ("plan", "options"), [({"reset": 1.0}, ()), ({"hang": 1.0}, ("--idle-seconds", "0.3"))], ids=str
)
async def test_a_stream_that_breaks_off_ends_with_an_error_event(
    plan: dict[str, Any], options: Sequence[str]
) -> None:
    async with both(count=1, router_options=options) as (workers, _, client):
        await faults(workers.workers[0]["url"], **plan)
        body = {"model": "stand-in", "prompt": prompt(1), "max_tokens": 50, "stream": True}
        answer = await client.post("/v1/completions", json=body)
        last = [line for line in answer.text.splitlines() if line.startswith("data: ")][-1]
        assert json.loads(last.removeprefix("data: "))["error"]["type"] == "upstream_error"
        assert await no_load(client)


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_a_workers_own_error_passes_unchanged_and_leaves_no_prediction(status: int) -> None:
    async with both(count=1) as (workers, _, client):
        await faults(workers.workers[0]["url"], status=status)
        body = {"model": "stand-in", "prompt": prompt(1), "max_tokens": 2}
        assert (await client.post("/v1/completions", json=body)).status_code == status
        assert (await rank_row(client))["predicted_blocks"] == 0
        assert await no_load(client)


async def test_an_answer_without_end_ends_with_its_client() -> None:
    async with both(count=1) as (workers, _, client):
        await faults(workers.workers[0]["url"], endless=1.0)
        body = {"model": "stand-in", "prompt": prompt(1), "max_tokens": 2, "stream": True}
        async with client.stream("POST", "/v1/completions", json=body) as answer:
            await anext(answer.aiter_lines())
        await until_awaited(lambda: no_load(client), "an empty ledger")


async def no_load(client: httpx2.AsyncClient) -> bool:
    rows = (await client.get("/workers")).json()["workers"]
    return all(row["inflight_requests"] == row["inflight_tokens"] == 0 for row in rows)


async def test_a_pause_that_lasts_is_routed_around() -> None:
    async with both(count=2) as (workers, _, client), httpx2.AsyncClient() as direct:
        url = workers.workers[0]["url"]
        await faults(url, hold_pause=1.0)
        await direct.post(f"{url}/pause_generation", json={"mode": "retract"})

        async def paused() -> bool:
            rows = (await client.get("/workers")).json()["workers"]
            return bool(rows[0]["state"] == "paused")

        await until_awaited(paused, "the pause to be seen")
        await direct.post(f"{url}/continue_generation", json={})
        await traffic(client, 6)
        await joined(client, 2)
