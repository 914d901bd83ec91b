"""A weight sync under traffic, as an RL trainer does it: pause, flush, continue, worker after worker."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from router.proxy.fetch import fetch
from router.proxy.upstream import Upstream
from workers.demo.processes import DemoError, until
from workers.demo.traffic import Sample, Workload, ask, new_chat, words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OK = 200
_USERS = 8
_LIMIT_SECONDS = 30.0
_TRANSFER_SECONDS = 1.0  # of the new weights; real ones take seconds to minutes


@dataclass(slots=True)
class Synced:
    """One worker's sync.

    `blocks_before` it held; `emptied_seconds` after the flush the router's view was empty, with the worker
    still paused; `flushed_at` is on the monotonic clock.
    """

    worker: str
    blocks_before: int
    flushed_at: float
    emptied_seconds: float


@dataclass(slots=True)
class Report:
    """All syncs, and what the traffic meanwhile showed."""

    syncs: list[Synced] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)

    def stale(self) -> list[Sample]:
        """Return the requests that were sent after their worker's flush and yet scored against its blocks."""
        flushed = {sync.worker: sync.flushed_at for sync in self.syncs}
        return [
            sample
            for sample in self.samples
            if sample.began > flushed.get(sample.worker, float("inf")) and sample.expected > sample.cached
        ]


async def weight_sync(client: Upstream, workers: Sequence[str], workload: Workload) -> Report:
    """Sync every worker in turn while users chat; returns when all is done."""
    report = Report()
    stop = asyncio.Event()
    users = [asyncio.create_task(_chat(client, workload, user, stop, report)) for user in range(_USERS)]
    try:
        for worker in workers:
            report.syncs.append(await _sync(client, worker))
    finally:
        stop.set()
        await asyncio.gather(*users)
    return report


async def _chat(client: Upstream, workload: Workload, user: int, stop: asyncio.Event, report: Report) -> None:
    own = Random(user)
    while not stop.is_set():
        chat = new_chat(workload, user % workload.groups)
        for _ in range(workload.turns):
            question = words(own, workload.question_words)
            report.samples.append(await ask(client, chat, question, workload.answer_tokens))


async def _sync(client: Upstream, worker: str) -> Synced:
    """Pause, flush, wait for the weights, continue; the router is told nothing and has to notice."""
    direct = Upstream(worker)
    try:
        before = await _rank(client, worker)
        await _post(direct, "/pause_generation", {"mode": "retract"})
        # At once, while the router still takes the worker for ready: what it scores now is what counts.
        await _post(direct, "/flush_cache", {})
        flushed = time.monotonic()
        await _until(client, worker, lambda row: _clears(row["ranks"][0]) > _clears(before))
        emptied = time.monotonic() - flushed
        await asyncio.sleep(_TRANSFER_SECONDS)
        await _post(direct, "/continue_generation", {})
        await _until(client, worker, lambda row: bool(row["state"] == "ready"))
    finally:
        await direct.close()
    return Synced(worker, sum(before["blocks"].values()), flushed, emptied)


async def _post(worker: Upstream, path: str, body: dict[str, Any]) -> None:
    reply = await fetch(worker, "POST", path, json=body, timeout=_LIMIT_SECONDS)
    if reply.status != _OK:
        raise DemoError(f"{path} answered {reply.status}: {reply.body[:200]!r}")


async def _row(client: Upstream, worker: str) -> dict[str, Any]:
    rows = (await fetch(client, "GET", "/workers", timeout=_LIMIT_SECONDS)).json()["workers"]
    row: dict[str, Any] = next(row for row in rows if row["url"] == worker)
    return row


async def _rank(client: Upstream, worker: str) -> dict[str, Any]:
    rank: dict[str, Any] = (await _row(client, worker))["ranks"][0]
    return rank


def _clears(rank: dict[str, Any]) -> int:
    return int(rank["resets"].get("all_blocks_cleared", 0))


async def _until(client: Upstream, worker: str, holds: Callable[[dict[str, Any]], bool]) -> None:
    async def asked() -> bool:
        return holds(await _row(client, worker))

    await until(asked)
