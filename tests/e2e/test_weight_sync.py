"""An RL trainer syncs weights under load: no request is scored against cleared blocks, and none is lost.

When a worker's blocks were cleared is taken from the worker itself (`/_truth`). A trainer may call the
engines directly, in which case the router learns of the flush from events, or by asking where the engine
publishes none while paused; or it lets the router make the calls.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from time import time
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.e2e.processes import MODES, both
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

KEY = "a-key-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {KEY}"}
SYNCS = 20
USERS = 4
TURNS = 3
PAUSES = {
    "sglang": ("/pause_generation", {"mode": "retract"}, "/continue_generation"),
    "vllm": ("/pause?mode=keep&clear_cache=false", {}, "/resume"),
}

UPDATES = {
    "sglang": ["/update_weights_from_disk"],
    "vllm": [
        "/start_weight_update",
        "/update_weights",
        "/finish_weight_update",
        "/reset_prefix_cache?reset_running_requests=true",
    ],
}
WEIGHTS: dict[str, dict[str, Any]] = {"sglang": {"model_path": "new"}, "vllm": {"update_info": {"names": []}}}
VERSIONS = {"sglang": "model_info", "vllm": "weight_info"}
REQUESTS_BETWEEN = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """One answered request: its worker, what was expected to be cached there, and what was."""

    worker: str
    began: float
    ended: float
    expected: int
    cached: int


@dataclass(slots=True)
class Fleet:
    """Two workers behind a router, called through it and directly.

    `publishes`: also while paused. `unseen`: a worker that does not, and from when until when it was paused
    and flushed and the router had not asked it yet. What is sent there meanwhile waits for the pause's end.
    """

    engine: str
    workers: list[str]
    router: httpx2.AsyncClient
    direct: httpx2.AsyncClient
    publishes: bool = False
    samples: list[Sample] = field(default_factory=list)
    unseen: list[tuple[str, float, float]] = field(default_factory=list)

    async def truth(self, worker: str) -> dict[str, Any]:
        rank: dict[str, Any] = (await self.direct.get(f"{worker}/_truth")).json()["ranks"][0]
        return rank

    async def row(self, worker: str) -> dict[str, Any]:
        rows = (await self.router.get("/workers")).json()["workers"]
        row: dict[str, Any] = next(row for row in rows if row["url"] == worker)
        return row

    async def answered(self, requests: int) -> None:
        """Wait for so many more answers."""
        wanted = len(self.samples) + requests
        await until(lambda: len(self.samples) >= wanted, "answers")

    async def stale(self) -> list[Sample]:
        """Return the requests that were promised more than they got, though nothing was cleared meanwhile."""
        cleared = {worker: (await self.truth(worker))["cleared"] for worker in self.workers}
        return [
            sample
            for sample in self.samples
            if sample.expected > sample.cached
            and not any(sample.began <= moment <= sample.ended for moment in cleared[sample.worker])
            and not any(
                sample.worker == worker and paused <= sample.began <= seen
                for worker, paused, seen in self.unseen
            )
        ]


@asynccontextmanager
async def _loaded(options: tuple[str, ...]) -> AsyncIterator[Fleet]:
    """Run a fleet under load; when the block is left, every request is answered and checked."""
    async with (
        both(*options, "--capacity-tokens", "400000", count=2, router_options=("--admin-key", KEY)) as (
            workers,
            _,
            client,
        ),
        httpx2.AsyncClient(timeout=30.0) as direct,
    ):
        fleet = Fleet(
            options[1], [worker["url"] for worker in workers.workers], client, direct, "publishing" in options
        )
        stop = asyncio.Event()
        users = [asyncio.create_task(_chat(fleet, user, stop)) for user in range(USERS)]
        try:
            yield fleet
        finally:
            stop.set()
            await asyncio.gather(*users)
        await _check(fleet)


@pytest.mark.parametrize("paused_loop", ["legacy", "publishing"])
async def test_a_copy_to_the_host_that_ends_during_the_pause(paused_loop: str) -> None:
    """As released, the engine refuses to flush for the whole pause, and does so only after it."""
    options = ("--tier", "host=4x", "--host-gbps", "0.05", "--paused-loop", paused_loop)
    async with (
        both(*options, count=1) as (workers, _, client),
        httpx2.AsyncClient(timeout=30.0) as direct,
    ):
        (worker,) = (row["url"] for row in workers.workers)
        fleet = Fleet("sglang", [worker], client, direct)
        await _ask(fleet, list(range(160)))
        await direct.post(f"{worker}/pause_generation", json={"mode": "retract"})
        assert (await direct.post(f"{worker}/flush_cache")).status_code == 400
        await until_awaited(lambda: _copied(fleet, worker), "the copy to end")
        update = {"model_path": "new", "weight_version": "1"}
        answer = await direct.post(f"{worker}/update_weights_from_disk", json=update)
        refused = paused_loop == "legacy"
        assert (answer.status_code, answer.json()["success"]) == (400 if refused else 200, not refused)
        assert bool((await fleet.truth(worker))["blocks"]) is refused
        await direct.post(f"{worker}/continue_generation", json={})
        await until_awaited(lambda: _idle(fleet, worker), "the copy to be looked at")
        assert (await direct.post(f"{worker}/flush_cache")).status_code == 200
        await until_awaited(lambda: _agree(fleet, worker), "the view to be what the worker holds")
        await _ask(fleet, list(range(160)))
        await until_awaited(lambda: _idle(fleet, worker), "the next copy to be looked at")
        await until_awaited(lambda: _agree(fleet, worker), "the view to be what every tier holds")
        assert all((await fleet.row(worker))["ranks"][0]["blocks"].values())


async def _copied(fleet: Fleet, worker: str) -> bool:
    return not (await fleet.truth(worker))["copying"]


async def _idle(fleet: Fleet, worker: str) -> bool:
    return bool((await fleet.truth(worker))["idle"])


async def _agree(fleet: Fleet, worker: str) -> bool:
    """Return whether the router's view holds as many blocks of every tier as the worker does."""
    tiers = {medium: len(blocks) for medium, blocks in (await fleet.truth(worker))["tiers"].items()}
    seen = (await fleet.row(worker))["ranks"][0]["blocks"]
    return all(seen.get(medium, 0) == blocks for medium, blocks in tiers.items())


async def _chat(fleet: Fleet, user: int, stop: asyncio.Event) -> None:
    """Ask turn after turn, each time with all that was said before; no other user has the same prompt."""
    for chat in count():
        prompt = [user + 1, chat % 250 + 1, chat // 250 + 1] * 40
        for turn in range(TURNS):
            if stop.is_set():
                return
            await _ask(fleet, prompt)
            prompt = [*prompt, *([turn + 7] * 40)]


async def _ask(fleet: Fleet, prompt: list[int]) -> None:
    began = time()
    body = {"model": "stand-in", "prompt": prompt, "max_tokens": 6}
    answer = await fleet.router.post("/v1/completions", json=body)
    assert answer.status_code == 200, answer.text
    usage = answer.json()["usage"]
    assert usage["completion_tokens"] == 6
    worker, expected = (answer.headers[f"x-kv-router-{name}"] for name in ("worker", "overlap-tokens"))
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    fleet.samples.append(Sample(worker, began, time(), int(expected), cached))


async def _sync(fleet: Fleet, worker: str, number: int) -> None:
    """Sync one worker as a trainer does that knows nothing of the router."""
    pause, body, resume = PAUSES[fleet.engine]
    paused = time()
    before = len((await fleet.truth(worker))["cleared"])
    assert (await fleet.direct.post(worker + pause, json=body)).status_code == 200
    for path in UPDATES[fleet.engine]:
        update = WEIGHTS[fleet.engine] | {"weight_version": str(number)}
        assert (await fleet.direct.post(worker + path, json=update)).status_code == 200
    truth = await fleet.truth(worker)
    assert (truth["blocks"], truth["paused"], len(truth["cleared"])) == ([], True, before + 1)
    await until_awaited(lambda: _empty(fleet, worker), "an empty view of a worker that is still paused")
    if not fleet.publishes:
        fleet.unseen.append((worker, paused, time()))
    assert (await fleet.direct.post(worker + resume, json={})).status_code == 200
    await until_awaited(lambda: _is(fleet, worker, "ready"), "the worker to be ready again")


async def _is(fleet: Fleet, worker: str, state: str) -> bool:
    return bool((await fleet.row(worker))["state"] == state)


async def _empty(fleet: Fleet, worker: str) -> bool:
    return not any((await fleet.row(worker))["ranks"][0]["blocks"].values())


async def _check(fleet: Fleet) -> None:
    assert await fleet.stale() == []
    assert {sample.worker for sample in fleet.samples} == set(fleet.workers)
    hits = sum(sample.cached > 0 for sample in fleet.samples)
    assert hits >= len(fleet.samples) // 4


@pytest.mark.parametrize("options", MODES, ids=" ".join)
async def test_a_trainer_that_calls_the_engines(options: tuple[str, ...]) -> None:
    async with _loaded(options) as fleet:
        for number in range(SYNCS):
            await _sync(fleet, fleet.workers[number % 2], number)


@pytest.mark.parametrize("options", MODES, ids=" ".join)
async def test_a_trainer_that_lets_the_router_make_the_calls(options: tuple[str, ...]) -> None:
    async with _loaded(options) as fleet:
        for number in range(SYNCS):
            body = {
                "update": WEIGHTS[fleet.engine] | {"weight_version": str(number)},
                "max_paused": 1 + number % 2,
            }
            answer = await fleet.router.post("/admin/weight_sync", json=body, headers=BEARER)
            assert answer.json()["ok"] is True, answer.text
            await fleet.answered(REQUESTS_BETWEEN)
        for worker in fleet.workers:
            assert len((await fleet.truth(worker))["cleared"]) >= SYNCS
            said = (await fleet.direct.get(f"{worker}/{VERSIONS[fleet.engine]}")).json()
            assert said["weight_version"] == str(SYNCS - 1)
