"""The fleet: all workers, and for every model name the ranks that may take its requests now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from router.core.index import Index
from router.core.rank import Rank
from router.errors import BadRequest, Busy, NoWorker, UnknownModel
from router.fleet.spec import EngineName, WorkerSpec
from router.fleet.supervisor import Supervisor
from router.fleet.worker import ViewLimits, Worker, WorkerState
from router.proxy.drive import in_task
from router.proxy.limits import Limits
from router.proxy.upstream import Upstream
from router.streams.sockets import context

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping

    from router.engines.description import Description
    from router.streams.stream import Stream

T = TypeVar("T")
# Work left by resets and large events done per turn of the loop, about half a millisecond.
_SWEEP_PORTION = 1000
_TICK_SECONDS = 1.0
_WILL_BE_READY = frozenset({WorkerState.PAUSED, WorkerState.DRAINING})
_NONE = "no worker that serves {!r} can take a request now"


class Route(msgspec.Struct):
    """What a model name stands for: base model, LoRA adapter if it is one, and the ranks that serve it.

    `ranks` are those of ready workers; `paused`: whether others will be ready again by themselves.
    `engine` is that of the first worker: how it names adapters and renders chats holds for all.
    """

    model: str
    lora: str | None
    engine: EngineName
    ranks: list[Rank]
    paused: bool = False


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
    ) -> None:
        """`prepare` is awaited before a worker that has said who it is takes its first request."""
        self._work = asyncio.Event()
        self.index = Index(view_limits.index_bound, wake=self._work.set)
        self._zmq = context()
        self._routes: dict[str, Route] | None = None
        self._waiting: set[asyncio.Future[None]] = set()
        self._sync: asyncio.Future[Any] | None = None
        self._stopping = False
        self.workers: dict[str, Worker] = {}
        self._supervisors: dict[str, Supervisor] = {}
        self._tasks: list[asyncio.Task[None]] = []
        for spec in specs:
            upstream = Upstream(spec.url, limits=upstream_limits)
            side = Upstream(spec.url, limits=Limits(connect_seconds=upstream_limits.connect_seconds))
            worker = Worker(spec, upstream, self.index, self._zmq, view_limits, self._changed, side=side)
            self.workers[spec.url] = worker
            self._supervisors[spec.url] = Supervisor(worker, probe_seconds=probe_seconds, prepare=prepare)

    def start(self) -> None:
        """Begin to supervise; needs a running loop."""
        runs = [supervisor.run() for supervisor in self._supervisors.values()]
        self._tasks = [asyncio.ensure_future(run) for run in (*runs, self._tick(), self._sweep())]

    async def close(self) -> None:
        """Stop everything and leave nothing behind; a weight sync under way continues its workers first."""
        if self._sync is not None:
            self._sync.cancel()
            await asyncio.gather(self._sync, return_exceptions=True)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for worker in self.workers.values():
            worker.close()
            await worker.upstream.close()
            await worker.side.close()
        self._zmq.destroy(linger=0)

    @property
    def ready(self) -> bool:
        """Whether one worker can take traffic."""
        return any(worker.state is WorkerState.READY for worker in self.workers.values())

    def with_adapter(self, ranks: list[Rank], adapter: str) -> list[Rank]:
        """Return the ranks whose workers list an adapter; all of them where none does."""
        listed = [rank for rank in ranks if adapter in self._adapters(rank)]
        return listed or ranks

    def of_engine(self, ranks: list[Rank], engine: EngineName) -> list[Rank]:
        """Return the ranks whose workers run an engine."""
        return [rank for rank in ranks if self.engine_of(rank) == engine]

    def engine_of(self, rank: Rank) -> EngineName | None:
        """Return what engine a rank's worker runs."""
        said = self.workers[rank.worker].description
        return said.engine if said is not None else None

    def _adapters(self, rank: Rank) -> Mapping[str, str]:
        said = self.workers[rank.worker].description
        return said.adapters if said is not None else {}

    def find(self, name: str) -> Worker | None:
        """Return the worker of this URL, which may be given without its scheme."""
        for worker in self.workers.values():
            if name in (worker.url, worker.url.partition("://")[2]):
                return worker
        return None

    def worker_of(self, rank: Rank) -> Worker:
        """Return the worker that a rank belongs to."""
        return self.workers[rank.worker]

    def suspect(self, rank: Rank, why: str) -> None:
        """Note that a rank's worker could not be reached."""
        self._supervisors[rank.worker].suspect(why)

    def stream_of(self, rank: Rank) -> Stream | None:
        """Return what feeds a rank's view."""
        return self.workers[rank.worker].stream(rank.rank)

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
            raise self._unknown(model, table)
        return route

    def _with_adapter(self, model: str, table: dict[str, Route]) -> Route | None:
        """Return the route of "base:adapter", which SGLang takes as a model name."""
        route = table.get(model.partition(":")[0])
        return route if route is not None and route.engine == "sglang" else None

    def _unknown(self, model: str | None, table: dict[str, Route]) -> UnknownModel | NoWorker:
        if not table:
            return NoWorker("no worker is up yet", retry_after=1)
        served = ", ".join(table)
        return UnknownModel(f"the model {model!r} does not exist; served here: {served}", param="model")

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

    def stop_waiting(self) -> None:
        """Let go of the requests that wait for a paused worker: the router is stopping."""
        self._stopping = True
        self._changed()

    async def wait_for(self, model: str | None, seconds: float) -> Route:
        """Return a model's route once it has ranks; while all of its workers are paused, wait for one.

        Raises NoWorker when there is nothing to wait for, or after so many seconds.
        """
        await in_task()
        try:
            async with asyncio.timeout(seconds):
                while not (route := self.route(model)).ranks:
                    if self._stopping or not route.paused:
                        raise NoWorker(_NONE.format(route.model), retry_after=1)
                    change = asyncio.get_running_loop().create_future()
                    self._waiting.add(change)
                    await change
        except TimeoutError:
            why = f"every worker that could serve this is paused, for {seconds:g} s now"
            raise NoWorker(why, retry_after=max(1, round(seconds))) from None
        return route

    def _changed(self) -> None:
        self._routes = None
        waiting, self._waiting = self._waiting, set()
        for change in waiting:
            if not change.done():
                change.set_result(None)

    def _table(self) -> dict[str, Route]:
        if self._routes is None:
            self._routes = _routes(self.workers.values())
        return self._routes

    async def _tick(self) -> None:
        """Let predictions expire."""
        while True:
            now = asyncio.get_running_loop().time()
            for worker in self.workers.values():
                for rank in worker.ranks:
                    rank.view.predicted.expire(now)
            await asyncio.sleep(_TICK_SECONDS)

    async def _sweep(self) -> None:
        """Do what the index has left for later, a portion per turn of the loop."""
        while True:
            self._work.clear()
            more = self.index.sweep(_SWEEP_PORTION)
            await (asyncio.sleep(0) if more else self._work.wait())


def _routes(workers: Iterable[Worker]) -> dict[str, Route]:
    """Build the table of model names."""
    table: dict[str, Route] = {}
    for worker in workers:
        for name, lora in _names(worker):
            said = worker.description
            assert said is not None  # noqa: S101 - it has names
            route = table.setdefault(name, Route(said.model, lora, said.engine, []))
            if not refusal(worker):
                route.ranks.extend(worker.ranks)
            elif worker.state in _WILL_BE_READY and not role_refusal(worker):
                route.paused = True
    return table


def _names(worker: Worker) -> list[tuple[str, str | None]]:
    """Return a worker's model names, each with the adapter that it stands for."""
    said = worker.description
    if said is None:
        return []
    names: list[tuple[str, str | None]] = [(name, None) for name in (said.model, *said.aliases)]
    if said.engine == "sglang":
        # SGLang (0.5.23) looks for an adapter behind a colon only; its name alone means the base model.
        return names + [(f"{said.model}:{name}", name) for name in said.adapters]
    return names + [(name, name) for name in said.adapters]


def refusal(worker: Worker) -> str:
    """Say why a worker takes no new request, "" when it does."""
    if worker.state is not WorkerState.READY:
        return f"{worker.state}: {worker.why}" if worker.why else str(worker.state)
    return role_refusal(worker)


def role_refusal(worker: Worker) -> str:
    """Say why a worker's role keeps requests from it, "" when it does not."""
    role = worker.description.role if worker.description is not None else "both"
    return "" if role == "both" else f"role {role}: prefill/decode pairs are not routed"
