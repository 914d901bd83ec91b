"""The fleet: all workers, and for every model name the ranks that may take its requests now."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from router.core.breaker import BreakerRules, Failure
from router.errors import (
    BadRequest,
    Busy,
    NoWorker,
    UnknownModel,
    UpstreamTimeout,
    all_paused,
)
from router.fleet.loads import LoadWatch
from router.fleet.outliers import eject_outliers
from router.fleet.parts import Parts
from router.fleet.roster import Roster
from router.fleet.route import routes_of
from router.proxy.drive import in_task
from router.proxy.upstream import Upstream
from router.streams.sockets import context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from router.core.rank import Rank
    from router.engines.description import Description
    from router.errors import UpstreamFailed
    from router.fleet.limits import ViewLimits
    from router.fleet.route import Route
    from router.fleet.spec import EngineName, WorkerSpec
    from router.fleet.worker import Worker
    from router.proxy.limits import Limits
    from router.streams.stream import Stream

T = TypeVar("T")
# Work left by resets and large events done per turn of the loop, about half a millisecond.
SWEEP_PORTION = 600
_TICK_SECONDS = 1.0
_EXPIRE_SECONDS = 0.001
_NONE = "no worker that serves {!r} can take a request now"


class Fleet:
    """Owns the index, the ZMQ context, the workers and their supervision."""

    def __init__(
        self,
        specs: Iterable[WorkerSpec],
        *,
        upstream_limits: Limits,
        view_limits: ViewLimits,
        probe_seconds: float,
        prepare: Callable[[Description, Upstream], Awaitable[None]],
        breaker: BreakerRules | None = None,
        connect: Callable[..., Upstream] = Upstream,
        load_seconds: float = 0.0,
        parts: Parts | None = None,
    ) -> None:
        """`prepare` is awaited before a worker that has said who it is takes its first request.

        `connect` makes the Upstream of a worker's URL, with `limits` and `address`. `load_seconds`: how often
        engines are asked about their load, 0 for never.
        """
        self._work = asyncio.Event()
        self._parts = parts or Parts()
        self.index = self._parts.index(view_limits.index_bound, wake=self._work.set)
        self._zmq = context()
        self._routes: dict[str, Route] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._sync: asyncio.Future[Any] | None = None
        self.leaving = self._stopping = False
        self.on_change: Callable[[], object] | None = None
        self._breaker = breaker or BreakerRules()
        self.roster = Roster(
            self.index,
            self._zmq,
            self._changed,
            upstream_limits=upstream_limits,
            view_limits=view_limits,
            breaker=self._breaker,
            probe_seconds=probe_seconds,
            prepare=prepare,
            connect=connect,
            parts=self._parts,
        )
        self.workers: Mapping[str, Worker] = self.roster.workers
        self._load_seconds = load_seconds
        self._tasks: list[asyncio.Task[None]] = []
        for spec in specs:
            self.roster.enter(spec)

    def start(self) -> None:
        """Begin to supervise; needs a running loop."""
        self.roster.start()
        runs = [self._tick(), self._sweep()]
        if self._load_seconds:
            runs.append(LoadWatch(self.workers, self._zmq, self._load_seconds).run())
        self._tasks = [asyncio.ensure_future(run) for run in runs]

    async def close(self) -> None:
        """Stop everything and leave nothing behind; a weight sync under way continues its workers first."""
        if self._sync is not None:
            self._sync.cancel()
            await asyncio.gather(self._sync, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.roster.close()
        self._zmq.destroy(linger=0)

    @property
    def ready(self) -> bool:
        """Whether one worker, or one pair of them, can take traffic, and the router is here to stay."""
        return not self.leaving and any(route.serves for route in self._table().values())

    def serving(self) -> dict[str, bool]:
        """Return of every base model whether a worker, or a pair of them, can take requests for it now."""
        result: dict[str, bool] = {}
        for route in self._table().values():
            result[route.model] = route.serves or result.get(route.model, False)
        return result

    def with_adapter(self, ranks: list[Rank], adapter: str) -> list[Rank]:
        """Return the ranks whose workers list an adapter; all of them where none does."""
        listed = [rank for rank in ranks if adapter in self._adapters(rank)]
        # The same list as it was, where it can be: what is known of it is kept (`core.lineup`).
        return listed if 0 < len(listed) < len(ranks) else ranks

    def of_engine(self, ranks: list[Rank], engine: EngineName) -> list[Rank]:
        """Return the ranks whose workers run an engine."""
        found = [rank for rank in ranks if self.engine_of(rank) == engine]
        return found if len(found) < len(ranks) else ranks

    def engine_of(self, rank: Rank) -> EngineName | None:
        """Return what engine a rank's worker runs."""
        said = self.worker_of(rank).description
        return said.engine if said is not None else None

    def has_engine(self, engine: EngineName, model: str) -> bool:
        """Say whether any worker of a base model runs an engine."""
        descriptions = [worker.description for worker in self.workers.values()]
        return any(said and said.model == model and said.engine == engine for said in descriptions)

    def is_paused(self, model: str | None) -> bool:
        """Say whether nobody serves a model now, and somebody will. Raises as `route` does."""
        route = self.route(model)
        return route.paused and not route.serves

    def _adapters(self, rank: Rank) -> Mapping[str, str]:
        said = self.worker_of(rank).description
        return said.adapters if said is not None else {}

    def ranks(self) -> list[Rank]:
        """Return the ranks of all workers, whatever their state."""
        return [rank for worker in self.workers.values() for rank in worker.ranks]

    def find(self, name: str) -> Worker | None:
        """Return the worker of this URL, which may be given without its scheme."""
        for worker in self.workers.values():
            if name in (worker.url, worker.url.partition("://")[2]):
                return worker
        return None

    def worker_of(self, rank: Rank) -> Worker:
        """Return the worker that a rank belongs to, or belonged to."""
        worker: Worker = rank.owner
        return worker

    def failed(self, rank: Rank, failure: UpstreamFailed, *, begun: bool = False) -> None:
        """Note that a request to a rank's worker has failed, before or after its answer had `begun`."""
        if failure.fault != "worker":
            return
        if isinstance(failure, UpstreamTimeout):
            kind = Failure.TIMEOUT
        elif begun:
            kind = Failure.CUT
        else:
            kind = Failure.RESET if failure.sent else Failure.CONNECT
        self.worker_of(rank).health.failed(kind, failure.message, failure.trial)

    def holds(self, rank: Rank) -> bool:
        """Whether a rank is still one of its worker's, whose view means something."""
        return rank in self.worker_of(rank).ranks

    def stream_of(self, rank: Rank) -> Stream | None:
        """Return what feeds a rank's view."""
        return self.worker_of(rank).stream(rank.rank)

    def distrust(self, rank: Rank) -> None:
        """Let a rank whose claims fail again and again begin anew."""
        stream = self.stream_of(rank)
        if stream is not None:
            stream.distrust()
        else:
            rank.view.reset("contradicted")

    def models(self) -> dict[str, Route]:
        """Return every model name that the fleet serves, adapters included, with its route."""
        return self._table()

    def route(self, model: str | None) -> Route:
        """Return where requests for a model may go; without a name, the only model there is.

        Raises UnknownModel, BadRequest (no name, several models), or NoWorker while no worker has ever
        been up; the route of a known model may have no ranks. One lookup when hot.
        """
        table = self._table()
        route = table.get(model) if model is not None else self._only(table)
        if route is None and model is not None:
            route = self._with_adapter(model, table)
        if route is None:
            raise self.unknown(model)
        return route

    def _with_adapter(self, model: str, table: dict[str, Route]) -> Route | None:
        """Return the route of "base:adapter", which SGLang takes as a model name."""
        route = table.get(model.partition(":")[0])
        return route if route is not None and route.engine == "sglang" else None

    def unknown(self, model: str | None) -> UnknownModel | NoWorker:
        """Return what is to be raised for a model that nobody serves."""
        table = self._table()
        if not table:
            return NoWorker("no worker is up yet", retry_after=1)
        served = ", ".join(table)
        return UnknownModel(f"the model {model!r} does not exist; served here: {served}", model=model or "")

    def _only(self, table: dict[str, Route]) -> Route | None:
        bases = {route.model for route in table.values()}
        if len(bases) > 1:
            expected = f"expected one of {', '.join(table)}"
            raise BadRequest(f"model: several models are served here, {expected}", param="model")
        return next((route for route in table.values() if route.lora is None), None)

    async def sync(self, run: Coroutine[Any, Any, T]) -> T:
        """Run a weight sync to its end, also when whoever asked for it is gone; one at a time.

        Raises Busy while another one runs.
        """
        if self._sync is not None and not self._sync.done():
            raise Busy("another weight sync is under way")
        self._sync = asyncio.ensure_future(run)
        return await asyncio.shield(self._sync)

    def leave(self) -> None:
        """Be ready for nothing new: the router will stop. What comes all the same is served."""
        self.leaving = True

    def stop_waiting(self) -> None:
        """Let go of the requests that wait for a paused worker: the router is stopping."""
        self._stopping = True
        self._changed()

    async def wait_for(self, model: str | None, seconds: float) -> Route:
        """Return a model's route once it serves; while all of its workers are paused, wait for one.

        Raises NoWorker when there is nothing to wait for, or after so many seconds.
        """
        await in_task()
        try:
            async with asyncio.timeout(seconds):
                while not (route := self.route(model)).serves:
                    if self._stopping or not route.paused:
                        raise NoWorker(_NONE.format(route.model), retry_after=1)
                    change = asyncio.get_running_loop().create_future()
                    self._waiting.add(change)
                    await change
        except TimeoutError:
            raise all_paused(seconds, retry_after=max(1, round(seconds))) from None
        return route

    def _changed(self) -> None:
        if self.on_change is not None:
            self.on_change()
        self._routes = None
        waiting, self._waiting = self._waiting, set()
        for change in waiting:
            if not change.done():
                change.set_result(None)

    def _table(self) -> dict[str, Route]:
        if self._routes is None:
            self._routes = routes_of(self.workers.values())
        return self._routes

    async def _tick(self) -> None:
        """Let predictions expire, and failures be forgotten."""
        while True:
            now = asyncio.get_running_loop().time()
            eject_outliers(self.workers.values(), self._breaker.outlier)
            for worker in self.workers.values():
                worker.health.breaker.turn()
                for rank in worker.ranks:
                    rank.view.predicted.forgive()
            self._parts.ticked(now, self.workers.values())
            await self._expire(now)
            await asyncio.sleep(_TICK_SECONDS)

    async def _expire(self, now: float) -> None:
        """Let predictions expire, for about a millisecond of each turn of the loop."""
        until = perf_counter() + _EXPIRE_SECONDS
        for rank in [rank for worker in self.workers.values() for rank in worker.ranks]:
            while rank.view.predicted.expire(now):
                self._parts.expired(rank, now)
                if perf_counter() > until:
                    await asyncio.sleep(0)
                    until = perf_counter() + _EXPIRE_SECONDS

    async def _sweep(self) -> None:
        """Do what the index has left for later, a portion per turn of the loop."""
        while True:
            self._work.clear()
            more = self.index.sweep(SWEEP_PORTION)
            await (asyncio.sleep(0) if more else self._work.wait())
