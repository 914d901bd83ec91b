"""A weight sync over a fleet: pause, update, flush, continue, and nobody is left paused whatever happens."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any

from router.engines.detect import ENGINES
from router.errors import BadRequest, RouterError, UpstreamFailed
from router.fleet.control import UP, Result, check_mode, control, nobody

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from router.fleet.control import Tell
    from router.fleet.effects import Effect
    from router.fleet.worker import Worker

_log = logging.getLogger(__name__)
_SYNC_FIELDS = ("mode", "update", "flush", "max_paused", "workers")
# A pause whose answer did not come can still take effect after the continue that was sent for it.
_CONTINUES, _CONTINUE_SECONDS = 5, 1.0
# How long a router that stops goes on to continue what a sync has paused.
_STOP_SECONDS = 8.0
# How long the other processes of a router may keep an engine from being continued.
_TELL_SECONDS = 2.0
# A process that has just started looks so often, for half a minute, whether it has heard from a worker.
_LOOKS, _LOOK_SECONDS = 600, 0.05
_UNKNOWN: Result = {"ok": False, "status": None, "answer": "no answer came in time", "sent": True}


class WeightSync:
    """Pause, update, flush, continue, over a fleet; at most `max_paused` workers stand still at a time."""

    def __init__(self, body: dict[str, Any], workers: Sequence[Worker], tell: Tell = nobody) -> None:
        """Read the body: the pause's `mode`, `update` (a weight update's body), `flush`, `max_paused`.

        Without them all workers are paused at once and flushed. Raises BadRequest.
        """
        unknown = [name for name in body if name not in _SYNC_FIELDS]
        if unknown:
            known = ", ".join(_SYNC_FIELDS)
            raise BadRequest(f"{unknown[0]!r:.60}: unknown field, expected {known}", param=unknown[0])
        check_mode(workers, body.get("mode"))
        self._workers = workers
        self._tell = tell
        self._pause = {"mode": body["mode"]} if "mode" in body else {}
        self._update = _typed(body, "update", dict, None, "an object, the body of the weight update")
        self._flush = _typed(body, "flush", bool, True, "true or false")
        most = _typed(body, "max_paused", int, len(workers), "a number of workers, from 1")
        if most < 1 or most is True:
            raise BadRequest("max_paused: expected a number of workers, from 1", param="max_paused")
        self._turn = asyncio.Semaphore(most)

    async def run(self) -> dict[str, Result]:
        """Sync the workers; every one that was paused is continued whatever happens.

        Cancelled, it ends once all of them are, or after some seconds; the log names those that are not.
        """
        ones = (self._one(worker) for worker in self._workers)
        results = await asyncio.gather(
            *ones, return_exceptions=True
        )  # nobody is left behind by another's end
        done = dict(zip((worker.url for worker in self._workers), results, strict=True))
        for result in done.values():
            if isinstance(result, BaseException):
                raise result
        return {url: result for url, result in done.items() if not isinstance(result, BaseException)}

    async def _one(self, worker: Worker) -> Result:
        async with self._turn:
            steps: dict[str, Result] = {}
            stopping = False
            try:
                steps["pause"] = await control(worker, "pause", self._pause, self._tell)
                if steps["pause"]["ok"]:
                    await self._while_paused(worker, steps)
            except asyncio.CancelledError:
                stopping = True
                raise
            finally:
                # Refused, it was not paused by us; without an answer, or cancelled, it may be.
                paused = steps.get("pause", {"status": None, "sent": True})
                if paused["sent"] and (paused["status"] is None or paused["ok"]):
                    run = continued(worker, self._tell, certain="pause" in steps and paused["ok"])
                    steps["continue"] = await _surely(worker, run, stopping=stopping)
        return {"ok": all(step["ok"] for step in steps.values()), "steps": steps}

    async def _while_paused(self, worker: Worker, steps: dict[str, Result]) -> None:
        clears = worker.clears
        if self._update is not None:
            steps["update_weights"] = await control(worker, "update_weights", self._update, self._tell)
            if not steps["update_weights"]["ok"]:
                return
        # An update that has flushed already needs no second flush.
        if self._flush and worker.clears == clears:
            # Requests that wait out the sync hold blocks on vLLM; they are computed anew on the new weights.
            steps["flush"] = await control(worker, "flush", {"reset_running_requests": True}, self._tell)


async def continued(worker: Worker, tell: Tell = nobody, *, certain: bool) -> Result:
    """Continue a worker, again and again unless it is `certain` that its pause is over and done with."""

    async def told(effect: Effect) -> None:
        # Other processes may be gone, or stand still: the engine must not.
        with contextlib.suppress(RouterError, TimeoutError):
            async with asyncio.timeout(_TELL_SECONDS):
                await tell(effect)

    result = await control(worker, "continue", {}, told)
    said = worker.description
    for _ in range(0 if certain else _CONTINUES):
        await asyncio.sleep(_CONTINUE_SECONDS)
        try:
            if said is None or not await ENGINES[said.engine].is_paused(worker.side):
                break
        except UpstreamFailed:
            continue
        result = await control(worker, "continue", {}, told)
    return result


async def continue_left(workers: Sequence[Worker], tell: Tell) -> None:
    """Continue workers that somebody who is gone has paused, once it is known who they are."""
    await asyncio.gather(*(_continue_left(worker, tell) for worker in workers))


async def _continue_left(worker: Worker, tell: Tell) -> None:
    for _ in range(_LOOKS):
        if worker.state in UP:
            break
        await asyncio.sleep(_LOOK_SECONDS)
    await _surely(worker, continued(worker, tell, certain=False), stopping=False)


async def _surely(worker: Worker, run: Coroutine[Any, Any, Result], *, stopping: bool) -> Result:
    """Continue a worker also when cancelled, but then not for ever; log that it could not be done."""
    task = asyncio.ensure_future(run)
    try:
        await asyncio.wait([task], timeout=_STOP_SECONDS if stopping else None)
    except asyncio.CancelledError:
        await asyncio.wait([task], timeout=_STOP_SECONDS)
        raise
    finally:
        result = task.result() if task.done() else _UNKNOWN
        task.cancel()
        if not result["ok"]:
            why = result["answer"] or f"it answered {result['status']}"
            _log.error("worker %s: a weight sync has left it paused: %s", worker.url, why)
    return result


def _typed(body: dict[str, Any], name: str, kind: type, default: Any, expected: str) -> Any:
    value = body.get(name, default)
    if value is not default and not isinstance(value, kind):
        raise BadRequest(f"{name}: expected {expected}, got {value!r:.60}", param=name)
    return value
