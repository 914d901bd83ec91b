"""All processes of a router, as seen by one that has an admin call to carry out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from router.fleet.effects import Effect
    from router.fleet.fleet import Fleet
    from router.fleet.membership import Membership
    from router.fleet.spec import WorkerSpec
    from router.fleet.worker import Worker

T = TypeVar("T")


class Crew(Protocol):
    """What is done here holds in every process when the call returns."""

    async def add(self, spec: WorkerSpec) -> Worker:
        """Take a worker in, see `Membership.add`."""

    async def drain(self, worker: Worker, *, on: bool) -> None:
        """Keep requests away from a worker, or let them come again. Raises Busy."""

    async def remove(self, worker: Worker, seconds: float | None) -> int:
        """Remove a worker, see `Membership.remove`; return how many requests were cut in all."""

    async def tell(self, effect: Effect) -> None:
        """Have the others do what has been done here."""

    async def sync(self, run: Coroutine[Any, Any, T]) -> T:
        """Run a weight sync, see `Fleet.sync`. Raises Busy."""


class Alone:
    """The crew of a router of one process: nobody else has to be told."""

    def __init__(self, fleet: Fleet, membership: Membership) -> None:
        self._fleet = fleet
        self._membership = membership

    async def add(self, spec: WorkerSpec) -> Worker:
        """See `Crew`."""
        return await self._membership.add(spec)

    async def drain(self, worker: Worker, *, on: bool) -> None:
        """See `Crew`."""
        (self._membership.drain if on else self._membership.undrain)(worker)

    async def remove(self, worker: Worker, seconds: float | None) -> int:
        """See `Crew`."""
        return await self._membership.remove(worker, seconds)

    async def tell(self, effect: Effect) -> None:
        """See `Crew`."""

    async def sync(self, run: Coroutine[Any, Any, T]) -> T:
        """See `Crew`."""
        return await self._fleet.sync(run)
