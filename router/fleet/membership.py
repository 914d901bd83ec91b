"""Workers that come and go while the router runs: added, drained, removed, without touching other streams.

A worker that is drained takes no new requests and is otherwise looked after as before. One that is removed
is drained first; what it still has to do may take so long, then it is cut, and nothing of it is left. One
that is replaced, by another process or other settings behind the same URL, has the same time for its
requests, but is out of sight at once; these count as the new one's until they have ended.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.errors import Busy
from router.fleet.allowed import Confined
from router.fleet.roster import place_of, release
from router.observe.logs import fields

if TYPE_CHECKING:
    from router.fleet.allowed import Allowed
    from router.fleet.roster import Roster
    from router.fleet.spec import WorkerSpec
    from router.fleet.worker import Worker

# How often a worker that is to be removed is looked at: whether it is done.
_LOOK_SECONDS = 0.02
_log = logging.getLogger(__name__)
_BY_OPERATOR = "by the operator"


@dataclass(slots=True)
class _Leaving:
    """A removal under way; `until` is monotonic seconds. The task returns how many requests were cut."""

    until: float
    task: asyncio.Task[int]
    kept: bool = False

    def is_over(self) -> bool:
        """Whether the worker need not be waited for any longer."""
        return self.kept or time.monotonic() >= self.until


class Membership:
    """Changes who is on one roster. `drain_seconds`: how long a removal waits unless told otherwise."""

    def __init__(self, roster: Roster, allowed: Allowed, *, drain_seconds: float) -> None:
        self._roster = roster
        self._allowed = allowed
        self.drain_seconds = drain_seconds
        self._leaving: dict[str, _Leaving] = {}
        self._retired: dict[asyncio.Task[None], Worker] = {}

    async def add(self, spec: WorkerSpec) -> Worker:
        """Take a worker in, if all of its addresses are allowed; it takes requests once it is up.

        Raises NotPermitted, BadRequest (a name without an address), WorkerExists.
        """
        confined = await Confined.at(self._allowed, spec)
        return self._roster.enter(await confined.spec(spec), confined)

    def enter(self, spec: WorkerSpec, confined: Confined | None) -> Worker:
        """Take a worker in on the operator's own word. Raises WorkerExists."""
        return self._roster.enter(spec, confined)

    async def replace(self, worker: Worker, spec: WorkerSpec, confined: Confined | None) -> Worker:
        """Put another worker in the place of one, whose requests may still take the time of a removal.

        Raises Busy for one that is being removed.
        """
        if worker.url in self._leaving:
            raise Busy(f"the worker {worker.url} is being removed", param="url")
        try:
            await self._roster.retire(worker)
        finally:
            task = asyncio.ensure_future(self._release(worker))
            self._retired[task] = worker
            task.add_done_callback(self._retired.pop)
        return self._roster.enter(spec, confined, loads=worker.loads)

    def drain(self, worker: Worker) -> None:
        """Send no more requests to a worker; those that it has go on."""
        if worker.url not in self._leaving:
            worker.drain(_BY_OPERATOR)

    def undrain(self, worker: Worker) -> None:
        """Send requests to a worker again. Raises Busy for one that is being removed."""
        if worker.url in self._leaving:
            raise Busy(f"the worker {worker.url} is being removed", param="name")
        worker.drain("")

    async def remove(self, worker: Worker, seconds: float | None = None, *, why: str = _BY_OPERATOR) -> int:
        """Remove a worker once it has nothing left to do, or after so many seconds; return what was cut.

        It goes on when the caller has gone; a second call can only shorten the time. `why` is for the log.
        Raises Busy for one that is to be kept after all.
        """
        until = time.monotonic() + (self.drain_seconds if seconds is None else seconds)
        leaving = self._leaving.get(worker.url)
        if leaving is None:
            worker.drain(f"it is being removed: {why}")
            leaving = _Leaving(until, asyncio.ensure_future(self._remove(worker, why)))
            self._leaving[worker.url] = leaving
        leaving.until = min(leaving.until, until)
        return await asyncio.shield(leaving.task)

    async def keep(self, worker: Worker) -> None:
        """Give up the removal of a worker, if one is under way, and send requests there again."""
        leaving = self._leaving.get(worker.url)
        if leaving is not None:
            leaving.kept = True
            await asyncio.gather(leaving.task, return_exceptions=True)
            worker.drain("")

    async def close(self) -> None:
        """Give up what is under way: the fleet is being closed, with every worker in it."""
        tasks = [*(leaving.task for leaving in self._leaving.values()), *self._retired]
        await _cancel(tasks)

    async def _remove(self, worker: Worker, why: str) -> int:
        try:
            # Who had chosen the worker a moment ago has sent its request by the next turn of the loop.
            await asyncio.sleep(0)
            leaving = self._leaving[worker.url]
            await self._done(worker, leaving)
            if leaving.kept:
                raise Busy(f"the worker {worker.url} is wanted again", param="name")
            cut = worker.requests()
            await self._roster.leave(worker)
            await _cancel(self._before(worker))
        finally:
            self._leaving.pop(worker.url, None)
        _say_removed(worker.url, why, cut)
        return cut

    async def _done(self, worker: Worker, leaving: _Leaving) -> None:
        """Return once a worker has nothing to do, its time is over, or it is to be kept."""
        # Looking is cheaper than having each request tell that it has ended.
        while self._is_busy(worker) and not leaving.is_over():  # noqa: ASYNC110 - see above
            await asyncio.sleep(_LOOK_SECONDS)

    def _is_busy(self, worker: Worker) -> bool:
        """Whether a worker, or what was there before it, has anything to do."""
        return worker.busy() or any(self._retired[task].upstream.busy for task in self._before(worker))

    def _before(self, worker: Worker) -> list[asyncio.Task[None]]:
        """Return the tasks that wait for what was there before a worker."""
        place = place_of(worker.url)
        return [task for task, old in self._retired.items() if place_of(old.url) == place]

    async def _release(self, worker: Worker) -> None:
        """Let go of a worker that has been replaced, once what went over its connections has ended."""
        try:
            async with asyncio.timeout(self.drain_seconds):
                while worker.upstream.busy or worker.side.busy:  # noqa: ASYNC110 - see `_done`
                    await asyncio.sleep(_LOOK_SECONDS)
        except TimeoutError:
            cut = worker.upstream.busy
            _log.warning("worker %s: %d requests to what was there before are cut", worker.url, cut)
        finally:
            await release(worker)


async def _cancel(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _say_removed(url: str, why: str, cut: int) -> None:
    """Say that a worker is gone: its last line in the log."""
    level = logging.WARNING if cut else logging.INFO
    rest = f"requests cut, for their time was over: {cut}" if cut else "all of its requests had ended"
    said = fields("worker_removed", worker=url, why=why, requests_cut=cut)
    _log.log(level, "worker %s: removed (%s); %s", url, why, rest, extra=said)
