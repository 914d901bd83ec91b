"""Control calls through the router: both engines' dialects behind one API, and the right view reset in time.

A flush that the worker says has succeeded empties its views before the call returns; a refused one changes
nothing. Batches that were on their way at that moment are older than the reset and are never applied: the
stream skips what comes until the engine's own AllBlocksCleared.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from router.engines.detect import ENGINES
from router.errors import BadRequest, UpstreamFailed
from router.fleet.worker import Worker, WorkerState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.engines.control import Action, Outcome

Result = dict[str, Any]


async def control(worker: Worker, action: Action, body: dict[str, Any]) -> Result:
    """Carry out one action on one worker; return what came of it, also when nothing did."""
    said = worker.description
    if said is None:
        return {"ok": False, "status": None, "answer": f"{worker.state}: {worker.why}"}
    seen = worker.clears_seen()
    try:
        outcome = await ENGINES[said.engine].control(worker.upstream, action, body)
    except (UpstreamFailed, BadRequest) as error:
        return {"ok": False, "status": None, "answer": error.message}
    if outcome.cleared:
        worker.cleared(action, seen)
    _note(worker, action, outcome)
    return {"ok": outcome.ok, "status": outcome.status, "answer": outcome.answer}


async def control_all(workers: Sequence[Worker], action: Action, body: dict[str, Any]) -> dict[str, Result]:
    """Carry out one action on many workers at once; the results by worker."""
    results = await asyncio.gather(*(control(worker, action, body) for worker in workers))
    return {worker.url: result for worker, result in zip(workers, results, strict=True)}


def _note(worker: Worker, action: Action, outcome: Outcome) -> None:
    """Make the worker's state what it is now."""
    if action == "pause" and outcome.ok:
        worker.controlled(WorkerState.PAUSED, "paused through the router")
    elif action == "continue" and outcome.ok:
        worker.controlled(WorkerState.READY)


class WeightSync:
    """Pause, update, flush, continue, over a fleet; at most `max_paused` workers stand still at a time."""

    def __init__(self, body: dict[str, Any], *, max_paused: int) -> None:
        """`body`: `mode` of the pause, `update` (a weight update's body, or none), `flush` (default true).

        Raises BadRequest.
        """
        self._pause = {"mode": body["mode"]} if "mode" in body else {}
        self._update: dict[str, Any] | None = body.get("update")
        if self._update is not None and not isinstance(self._update, dict):
            raise BadRequest("update: expected an object, the body of the weight update", param="update")
        self._flush = body.get("flush", True)
        if not isinstance(self._flush, bool):
            raise BadRequest("flush: expected true or false", param="flush")
        self._turn = asyncio.Semaphore(max_paused)

    async def run(self, workers: Sequence[Worker]) -> dict[str, Result]:
        """Sync the workers; every one of them is continued whatever happens. The results by worker."""
        results = await asyncio.gather(*(self._one(worker) for worker in workers))
        return {worker.url: result for worker, result in zip(workers, results, strict=True)}

    async def _one(self, worker: Worker) -> Result:
        async with self._turn:
            steps: dict[str, Result] = {"pause": await control(worker, "pause", self._pause)}
            try:
                if steps["pause"]["ok"]:
                    await self._while_paused(worker, steps)
            finally:
                steps["continue"] = await control(worker, "continue", {})
        return {"ok": all(step["ok"] for step in steps.values()), "steps": steps}

    async def _while_paused(self, worker: Worker, steps: dict[str, Result]) -> None:
        resets = worker.clears
        if self._update is not None:
            steps["update_weights"] = await control(worker, "update_weights", self._update)
            if not steps["update_weights"]["ok"]:
                return
        # An update that has flushed already needs no second flush.
        if self._flush and worker.clears == resets:
            # Requests that wait out the sync hold blocks on vLLM; they are computed anew on the new weights.
            steps["flush"] = await control(worker, "flush", {"reset_running_requests": True})


def all_ok(results: dict[str, Result]) -> bool:
    """Whether every worker did what it was asked to."""
    return all(result["ok"] for result in results.values())
