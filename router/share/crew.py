"""Admin calls that all processes of a router follow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from router.errors import BadRequest, Busy, WorkerExists
from router.fleet.allowed import Allowed, Confined
from router.fleet.effects import Added, Drained, Effect, Removed
from router.share.line import FOLLOW_SECONDS, SHOW_SECONDS, Line, forget
from router.share.names import name_of
from router.share.parent import ask

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from router.fleet.fleet import Fleet
    from router.fleet.membership import Membership
    from router.fleet.spec import WorkerSpec
    from router.fleet.worker import Worker

T = TypeVar("T")


class TeamCrew:
    """A `Crew` of several processes."""

    def __init__(self, line: Line, fleet: Fleet, membership: Membership, allowed: Allowed) -> None:
        self._line = line
        self._fleet = fleet
        self._membership = membership
        self._allowed = allowed

    async def add(self, spec: WorkerSpec) -> Worker:
        """See `Crew`."""
        if spec.bind:
            raise BadRequest("bind: expected false, several processes cannot have one address", param="bind")
        confined = await Confined.at(self._allowed, spec)
        spec = await confined.spec(spec)
        names = {name_of(url) for url in self._fleet.workers}
        if name_of(spec.url) in names or await self._change(Added(spec, confined.address)) is None:
            raise WorkerExists(f"the worker {spec.url} is there already", param="url")
        return self._fleet.workers[spec.url]

    async def drain(self, worker: Worker, *, on: bool) -> None:
        """See `Crew`."""
        (self._membership.drain if on else self._membership.undrain)(worker)
        await self._change(Drained(worker.url, on))

    async def remove(self, worker: Worker, seconds: float | None) -> int:
        """See `Crew`."""
        longest = self._membership.drain_seconds if seconds is None else seconds
        cut = await self._change(Removed(worker.url, longest), longest)
        return cut or 0

    async def tell(self, effect: Effect) -> None:
        """See `Crew`."""
        await ask(self._line, "tell", effect, FOLLOW_SECONDS)

    async def sync(self, run: Coroutine[Any, Any, T]) -> T:
        """See `Crew`."""
        return await self._fleet.sync(self._sync(run))

    async def _sync(self, run: Coroutine[Any, Any, T]) -> T:
        if not msgspec.msgpack.decode(await ask(self._line, "sync", True, SHOW_SECONDS)):
            run.close()
            raise Busy("another weight sync is under way")
        try:
            return await run
        finally:
            self._line.call("sync", False).add_done_callback(forget)

    async def _change(self, effect: Effect, seconds: float = 0.0) -> int | None:
        """Have all processes follow, this one, too; None: it cannot be done."""
        raw = await ask(self._line, "change", effect, seconds + FOLLOW_SECONDS)
        return msgspec.msgpack.decode(raw, type=int | None)
