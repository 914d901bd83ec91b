"""Who is in the fleet: workers enter and leave, and each has somebody who looks after it."""

from __future__ import annotations

import asyncio
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from router.errors import WorkerExists
from router.fleet.supervisor import Supervisor
from router.fleet.worker import Worker, WorkerState
from router.observe.resets import MOST, Resets
from router.observe.ring import Ring
from router.proxy.limits import Limits
from router.proxy.origin import parse_origin
from router.streams.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    import zmq

    from router.core.breaker import BreakerRules
    from router.core.index import Index
    from router.core.ledger import Load
    from router.engines.description import Description
    from router.fleet.allowed import Confined
    from router.fleet.limits import ViewLimits
    from router.fleet.parts import Parts
    from router.fleet.spec import WorkerSpec
    from router.proxy.upstream import Upstream


Place: TypeAlias = tuple[str, int, bool, bytes]


class Roster:
    """`workers` by URL, in the order they came. `on_change` is called whenever one of them changes.

    `resets` are the last of all their views, also of workers that have left.
    """

    def __init__(
        self,
        index: Index,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        on_change: Callable[[], None],
        *,
        upstream_limits: Limits,
        view_limits: ViewLimits,
        breaker: BreakerRules,
        probe_seconds: float,
        prepare: Callable[[Description, Upstream], Awaitable[None]],
        connect: Callable[..., Upstream],
        parts: Parts,
    ) -> None:
        self.workers: dict[str, Worker] = {}
        self._places: dict[Place, Worker] = {}
        self.resets: Resets = Ring(MOST)
        self._supervisors: dict[str, Supervisor] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = False
        self._index = index
        self._zmq = zmq_context
        self._turns = Turns()
        self._on_change = on_change
        self._upstream_limits = upstream_limits
        self._side_limits = Limits(connect_seconds=upstream_limits.connect_seconds)
        self._view_limits = view_limits
        self._breaker = breaker
        self._probe_seconds = probe_seconds
        self._prepare = prepare
        self._connect = connect
        self._parts = parts

    def start(self) -> None:
        """Begin to look after the workers that are there, and from now on after each that comes."""
        self._started = True
        for url in self.workers:
            self._supervise(url)

    def enter(
        self, spec: WorkerSpec, confined: Confined | None = None, *, loads: Iterable[Load] = ()
    ) -> Worker:
        """Take a worker in, one that is `confined` to addresses that were checked. Raises WorkerExists.

        `loads`: what is under way at the one that it replaces, by rank.
        """
        place = place_of(spec.url)
        if place in self._places:
            raise WorkerExists(f"the worker {spec.url} is there already", param="url")
        worker = self._worker(spec, confined.address if confined is not None else None, loads)
        self.workers[spec.url] = self._places[place] = worker
        self._supervisors[spec.url] = Supervisor(
            worker,
            probe_seconds=self._probe_seconds,
            prepare=self._prepare,
            is_last=self._is_last,
            confined=confined,
        )
        if self._started:
            self._supervise(spec.url)
        return worker

    async def leave(self, worker: Worker) -> None:
        """Let go of a worker and of all that it holds here; requests it still has end with an error."""
        try:
            await self.retire(worker)
        finally:
            await release(worker)

    async def retire(self, worker: Worker) -> None:
        """Take a worker out, with its streams and views; requests it still has go on until its `release`.

        Its URL is free then for another one.
        """
        self._supervisors.pop(worker.url, None)
        task = self._tasks.pop(worker.url, None)
        try:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        finally:
            if self.workers.get(worker.url) is worker:
                del self.workers[worker.url], self._places[place_of(worker.url)]
            worker.close()
            self._on_change()

    async def close(self) -> None:
        """Let go of all."""
        for worker in list(self.workers.values()):
            await self.leave(worker)

    def _worker(self, spec: WorkerSpec, address: str | None, loads: Iterable[Load]) -> Worker:
        return Worker(
            spec,
            self._connect(spec.url, limits=self._upstream_limits, address=address),
            self._index,
            self._zmq,
            self._view_limits,
            self._on_change,
            side=self._connect(spec.url, limits=self._side_limits, address=address),
            breaker=self._breaker,
            turns=self._turns,
            parts=self._parts,
            resets=self.resets,
            loads=loads,
        )

    def _is_last(self, worker: Worker) -> bool:
        """Whether no other worker takes requests for the same model, in the same part."""
        return not any(
            each is not worker and each.shown()[0] is WorkerState.READY and _does_the_same(each, worker)
            for each in self.workers.values()
        )

    def _supervise(self, url: str) -> None:
        self._tasks[url] = asyncio.ensure_future(self._supervisors[url].run())


def _does_the_same(one: Worker, other: Worker) -> bool:
    return (
        one.description is not None
        and other.description is not None
        and (one.description.model, one.description.role) == (other.description.model, other.description.role)
    )


async def release(worker: Worker) -> None:
    """Close the connections to a worker that has been retired; what is under way ends with an error."""
    await worker.upstream.close()
    await worker.side.close()


@lru_cache(maxsize=4096)
def place_of(url: str) -> Place:
    """Return what two URLs of the same worker have in common, however they are spelled."""
    origin = parse_origin(url)
    return origin.host, origin.port, origin.secure, origin.prefix
