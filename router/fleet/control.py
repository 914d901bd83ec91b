"""Control calls through the router: both engines' dialects behind one API, and the right view reset in time.

A flush that the worker says has succeeded empties its views before the call returns; a refused one changes
nothing. Batches that were on their way at that moment are older than the reset and are never applied: the
stream skips what comes until the engine's own AllBlocksCleared.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from router.engines.detect import ENGINES
from router.errors import BadRequest, UpstreamFailed
from router.fleet.effects import Begun, Ended
from router.fleet.resets import cleared, clears_seen
from router.fleet.worker import Worker, WorkerState

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from router.engines.control import Action
    from router.fleet.effects import Effect

    Tell = Callable[[Effect], Awaitable[None]]

Result = dict[str, Any]
_log = logging.getLogger(__name__)
UP = frozenset({WorkerState.READY, WorkerState.PAUSED, WorkerState.DRAINING})


async def nobody(_: Effect) -> None:
    """Tell nobody of an effect: there is one process."""


@dataclass(frozen=True, slots=True)
class Before:
    """A worker when a call to it began: what its streams had seen, and its state."""

    seen: list[int]
    state: WorkerState


def begin(worker: Worker, action: Action) -> Before:
    """Take note that a control call begins, here or in another process."""
    before = Before(clears_seen(worker), worker.state)
    if action == "pause" and before.state is WorkerState.READY:
        worker.controlled(WorkerState.DRAINING, "being paused through the router")
    return before


def end(worker: Worker, before: Before, ended: Ended) -> None:
    """Make the views and the state of a worker what a control call has left them."""
    if ended.cleared:
        cleared(worker, ended.action, before.seen)
    if before.state not in UP:
        return
    if not ended.answered:
        worker.controlled(before.state)
    elif ended.action == "pause":
        state, why = (WorkerState.PAUSED, "paused through the router") if ended.ok else (before.state, "")
        worker.controlled(state, why)
    elif ended.action == "continue" and ended.ok:
        worker.controlled(WorkerState.READY)


async def control(worker: Worker, action: Action, body: dict[str, Any], tell: Tell = nobody) -> Result:
    """Carry out one action on one worker; return what came of it, also when nothing did.

    `status` is the worker's, None when it has not answered. `tell` has other processes follow.
    """
    said, call = worker.description, uuid4().hex
    if said is None or worker.state not in UP:
        return {"ok": False, "status": None, "answer": f"{worker.state}: {worker.why}", "sent": False}
    before = begin(worker, action)
    await tell(Begun(call, worker.url, action))
    try:
        outcome = await ENGINES[said.engine].control(worker.side, action, body)
    except (UpstreamFailed, BadRequest) as error:
        ended = Ended(call, worker.url, action, answered=False, ok=False, cleared=False)
        _log.warning("worker %s: %s failed: %s", worker.url, action, error.message)
        sent = isinstance(error, UpstreamFailed)
        result: Result = {"ok": False, "status": None, "answer": error.message, "sent": sent}
    else:
        ended = Ended(call, worker.url, action, answered=True, ok=outcome.ok, cleared=outcome.cleared)
        level = logging.INFO if outcome.ok else logging.WARNING
        _log.log(level, "worker %s: %s answered %d", worker.url, action, outcome.status)
        result = {"ok": outcome.ok, "status": outcome.status, "answer": outcome.answer, "sent": True}
    end(worker, before, ended)
    await tell(ended)
    return result


async def control_all(
    workers: Sequence[Worker], action: Action, body: dict[str, Any], tell: Tell = nobody
) -> dict[str, Result]:
    """Carry out one action on many workers at once; the results by worker. Raises BadRequest."""
    if action == "pause":
        check_mode(workers, body.get("mode"))
    results = await asyncio.gather(*(control(worker, action, body, tell) for worker in workers))
    return {worker.url: result for worker, result in zip(workers, results, strict=True)}


def check_mode(workers: Sequence[Worker], mode: object) -> None:
    """Refuse a way to pause that one of the workers does not know, before any of them is touched."""
    for worker in workers:
        said = worker.description
        known = list(ENGINES[said.engine].PAUSE_MODES) if said is not None else []
        if known and mode is not None and mode not in known:
            expected = f"{', '.join(known)} on {worker.url}"
            raise BadRequest(f"mode: expected one of {expected}, got {mode!r:.60}", param="mode")


def all_ok(results: dict[str, Result]) -> bool:
    """Whether every worker did what it was asked to."""
    return all(result["ok"] for result in results.values())
