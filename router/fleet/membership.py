"""Workers that come and go while the router runs: added, drained, removed, without touching other streams.

A worker that is drained takes no new requests and is otherwise looked after as before. One that is removed is
drained first; what it still has to do may take so long, then it is cut, and nothing of it is left.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import Busy
from router.fleet.allowed import Confined

if TYPE_CHECKING:
    from router.fleet.allowed import Allowed
    from router.fleet.roster import Roster
    from router.fleet.spec import WorkerSpec
    from router.fleet.worker import Worker

# How often a worker that is to be removed is looked at: whether it is done.
_LOOK_SECONDS = 0.02
_BY_OPERATOR, _REMOVED = "by the operator", "it is being removed"


@dataclass(slots=True)
class _Leaving:
    """A removal under way; `until` is monotonic seconds. The task returns how many requests were cut."""

    until: float
    task: asyncio.Task[int]


class Membership:
    """Changes who is on one roster. `drain_seconds`: how long a removal waits unless told otherwise."""

    def __init__(self, roster: Roster, allowed: Allowed, *, drain_seconds: float) -> None:
        self._roster = roster
        self._allowed = allowed
        self._drain_seconds = drain_seconds
        self._leaving: dict[str, _Leaving] = {}

    async def add(self, spec: WorkerSpec) -> Worker:
        """Take a worker in, if all of its addresses are allowed; it takes requests once it is up.

        Raises NotPermitted, BadRequest (a name without an address), WorkerExists.
        """
        confined = await Confined.at(self._allowed, spec)
        return self._roster.enter(await confined.spec(spec), confined)

    def drain(self, worker: Worker) -> None:
        """Send no more requests to a worker; those that it has go on."""
        if worker.url not in self._leaving:
            worker.drain(_BY_OPERATOR)

    def undrain(self, worker: Worker) -> None:
        """Send requests to a worker again. Raises Busy for one that is being removed."""
        if worker.url in self._leaving:
            raise Busy(f"the worker {worker.url} is being removed", param="name")
        worker.drain("")

    async def remove(self, worker: Worker, seconds: float | None = None) -> int:
        """Remove a worker once it has nothing left to do, or after so many seconds; return what was cut.

        It goes on when the caller has gone; a second call can only shorten the time.
        """
        until = time.monotonic() + (self._drain_seconds if seconds is None else seconds)
        leaving = self._leaving.get(worker.url)
        if leaving is None:
            worker.drain(_REMOVED)
            leaving = _Leaving(until, asyncio.ensure_future(self._remove(worker)))
            self._leaving[worker.url] = leaving
        leaving.until = min(leaving.until, until)
        return await asyncio.shield(leaving.task)

    async def close(self) -> None:
        """Give up what is under way: the fleet is being closed, with every worker in it."""
        tasks = [leaving.task for leaving in self._leaving.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _remove(self, worker: Worker) -> int:
        try:
            # Who had chosen the worker a moment ago has sent its request by the next turn of the loop.
            await asyncio.sleep(0)
            # Looking is cheaper than having each request tell that it has ended.
            while worker.busy() and time.monotonic() < self._leaving[worker.url].until:  # noqa: ASYNC110 - see above
                await asyncio.sleep(_LOOK_SECONDS)
            cut = worker.requests()
            await self._roster.leave(worker)
        finally:
            del self._leaving[worker.url]
        return cut
