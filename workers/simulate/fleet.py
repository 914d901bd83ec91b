"""Workers and routers put together: who is told of what, and when.

Time goes from one thing of the timeline to the next (`run`); before each, all workers have caught up with it
and the routers have heard what they should have by then, so that a decision sees exactly what it would.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from router.core.blocks import Namespace, PromptBlocks
from router.core.cost import POLICIES
from workers.engine import control
from workers.engine.load import load_of
from workers.engine.request import Request
from workers.engine.sequence import Sequence
from workers.simulate.events import heard
from workers.simulate.flight import Flight, Share
from workers.simulate.later import Later
from workers.simulate.records import Record, Sample
from workers.simulate.router import MODEL, SimRouter
from workers.simulate.setup import VOCABULARY
from workers.simulate.worker import SimWorker
from workers.traces.workload import tokens_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core import events
    from workers.engine.events import Batch
    from workers.engine.rank import Rank
    from workers.simulate.setup import Setup
    from workers.traces.workload import Ask

_NAMESPACE = Namespace(MODEL)


class SimFleet:
    """All workers and routers of one simulation. `records` are in the order of the requests."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.records: list[Record] = []
        policy = POLICIES[setup.policy]
        self._hears = setup.hears and policy.uses_prompt
        self._policy = policy
        self._made = self._turns = 0
        self.routers = [self._router() for _ in range(setup.replicas)]
        self.workers = [
            SimWorker(
                setup.engine(),
                publishes=partial(self._published, number),
                tells=self._told,
                loop=setup.loop,
                leaps=setup.leaps,
            )
            for number in range(setup.workers)
        ]
        self._history: list[deque[events.Batch]] = [deque(maxlen=setup.history) for _ in self.workers]
        self._late = Later()
        self._sent: dict[Request, Flight] = {}
        self._held: list[tuple[Ask, Record]] = []
        self._paused = False

    def _router(self) -> SimRouter:
        setup, self._made = self.setup, self._made + 1
        return SimRouter(
            setup.workers,
            self._policy,
            setup.weights,
            Random(f"{setup.seed} {self._made}"),
            page_size=setup.page_size,
            ttl=setup.predicted_ttl if setup.hears else setup.approximate_ttl,
            bound=setup.predicted_bound,
        )

    def reach(self, now: float) -> None:
        """Let everything happen that happens by `now`."""
        for worker in self.workers:
            if worker.quiet <= now:
                worker.catch_up(now)
        self._late.run(now)

    def ask(self, ask: Ask, now: float) -> None:
        """Take a request, and send it to a worker unless all are paused."""
        record = Record(now, ask.tokens, ask.output)
        self.records.append(record)
        if self._paused:
            self._held.append((ask, record))
        else:
            self._send(ask, record, now)

    def _send(self, ask: Ask, record: Record, now: float) -> None:
        tokens = tokens_of(ask.segments, VOCABULARY)
        prompt = PromptBlocks(tokens if self._policy.uses_prompt else b"", record.prompt, _NAMESPACE)
        router = self.routers[self._turns % len(self.routers)]
        self._turns += 1
        request = Request(
            str(len(self.records)), Sequence(bytearray(tokens), self.setup.page_size), ask.output, eager=True
        )
        session = None if ask.session is None else str(ask.session).encode()
        sent = router.route(prompt, session, now)
        record.worker = int(sent.candidate.rank.worker)
        self._sent[request] = flight = Flight(record, router, sent, self._share(router))
        flight.begin(now)
        self.workers[record.worker].submit(request, now)

    def _share(self, router: SimRouter) -> Share | None:
        seconds = self.setup.share
        if seconds is None or len(self.routers) == 1:
            return None
        return Share(self._late, seconds, [other for other in self.routers if other is not router])

    def _told(self, request: Request, now: float) -> None:
        """Take note of a first token, or of the end of an answer; nobody asks for the tokens between."""
        flight = self._sent[request]
        record = flight.record
        if record.ttft is None:
            record.ttft, request.eager = now - record.at, False
            flight.first_token(now)
        if request.finish is not None:
            del self._sent[request]
            record.seconds, record.cached = now - record.at, request.cached_tokens or 0
            flight.end(record.cached, now)

    def _published(self, worker: int, batch: Batch) -> None:
        if not self._hears:
            return
        said = heard(batch)
        if self.setup.restarts:
            self._history[worker].append(said)
        for router in self.routers:
            self._after(self.setup.lag, batch.ts, partial(router.hear, worker, said))

    def _after(self, seconds: float, now: float, what: Callable[[], None]) -> None:
        if seconds:
            self._late.add(now + seconds, what)
        else:
            what()

    def pause(self, now: float) -> None:
        """Pause all workers for a weight sync, and flush them."""
        self._paused = True
        for worker in self.workers:
            worker.post(partial(_pause, worker.rank), now)

    def resume(self, now: float) -> None:
        """End the pause; what has come meanwhile is sent now."""
        self._paused = False
        for worker in self.workers:
            worker.post(partial(_resume, worker.rank), now)
        held, self._held = self._held, []
        for ask, record in held:
            self._send(ask, record, now)

    def lose(self, worker: int, now: float) -> None:
        """Empty a worker's caches; what runs there begins anew."""
        rank = self.workers[worker].rank
        self.workers[worker].post(partial(_lose, rank), now)

    def note_loads(self, now: float) -> None:
        """Let every router hear from the workers how busy they are."""
        for number, worker in enumerate(self.workers):
            load = load_of(worker.at(now))
            for router in self.routers:
                router.note_engine(number, load)

    def sample(self, now: float) -> Sample:
        """Return what the workers are at now."""
        ranks = [worker.at(now) for worker in self.workers]
        return Sample(
            now,
            [len(rank.requests()) for rank in ranks],
            [rank.memory.held / rank.memory.capacity for rank in ranks],
        )

    @property
    def retracted(self) -> int:
        """How often a worker took back a request for want of memory."""
        return sum(worker.rank.counters.retracted for worker in self.workers)

    def restart(self, replica: int) -> None:
        """Let a router forget all it knows, and read the history that the workers keep."""
        self.routers[replica] = router = self._router()
        for worker, batches in enumerate(self._history):
            for batch in batches:
                router.hear(worker, batch)


def _pause(rank: Rank, now: float) -> None:
    control.pause(rank, "retract", now)
    rank.clear()


def _resume(rank: Rank, _now: float) -> None:
    control.resume(rank)


def _lose(rank: Rank, now: float) -> None:
    control.retract(rank, now)
    rank.clear()
    rank.publish(now)
