"""From a plan to the worker that should have it, and to the next best one while none has answered.

A request goes to another worker only while not one byte of an answer has come, and when a worker may have it
already, only once: a request that brings workers down must not go round. When there is no other worker, the
same one is tried again, after a moment. What a worker has refused goes only to one that has not refused
anything lately. Whatever ends a request, its load leaves the ledger.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from router.api.admission import priority
from router.api.answers import routed
from router.api.books import Books
from router.api.chooser import Chooser
from router.api.cut import note_cut
from router.api.eligible import computing, nobody, unspared, with_room
from router.api.feedback import Feedback, batches
from router.api.pairs import PairDispatcher
from router.api.picking import Pick
from router.api.refusal import Refused, weigh
from router.api.tempo import begun, ended
from router.errors import OutOfDescriptors, UpstreamFailed, UpstreamTimeout
from router.proxy.headers import laid_over
from router.proxy.relay import relay

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from collections.abc import Set as AbstractSet

    from router.api.admission import Admission
    from router.api.exchange import Exchange
    from router.api.planner import Plan, Planner
    from router.api.retries import Retries
    from router.core.accounts import Accounts
    from router.core.facts import Candidate
    from router.core.rank import Rank
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.observe.story import Story
    from router.pairs.choice import Judge
    from router.proxy.headers import Field

    Among = Callable[[list[Rank]], list[Rank]]

_OK = 200
_NONE: frozenset[str] = frozenset()


class Dispatcher:
    """Sends requests to the workers of one fleet."""

    def __init__(
        self,
        fleet: Fleet,
        planner: Planner,
        metrics: Metrics,
        judge: Judge,
        accounts: Accounts,
        *,
        retries: Retries,
        admission: Admission,
    ) -> None:
        self._fleet = fleet
        self._admission = admission
        self._metrics = metrics
        self._feedback = Feedback(fleet, planner, metrics)
        self._retries = retries
        self._rng = judge.rng
        self._chooser = Chooser(fleet, metrics, judge, admission)
        self._books = Books(accounts)
        self._pairs = PairDispatcher(
            fleet,
            metrics,
            self._feedback,
            accounts,
            judge,
            self._attempt,
            retries=retries,
            admission=admission,
        )

    async def dispatch(self, plan: Plan, exchange: Exchange) -> None:
        """Have a request answered. Raises RouterError while nothing has been answered."""
        if plan.route.halves is not None:
            await self._paired(plan, exchange)
            return
        admission, model = self._admission, plan.route.model
        ranks = admission.take(model, self._chooser.eligible(plan, _NONE) or await self._chooser.coming(plan))
        if ranks is None:
            look = partial(self._chooser.look, plan)
            paused = partial(self._fleet.is_paused, plan.request.model)
            ranks = await admission.wait(model, priority(exchange.cycle.headers), look, paused)
        try:
            candidate = self._chooser.choose(plan, ranks, exchange.story)
            await self._attempt(plan, candidate, exchange)
        except OutOfDescriptors:
            raise  # nobody else can be reached either
        except UpstreamFailed as failure:
            await self._retry(plan, exchange, candidate, failure)
        finally:
            admission.leave()

    async def _paired(self, plan: Plan, exchange: Exchange) -> None:
        """Have a request answered by a pair, once somebody has room for each half of it."""
        admission, model = self._admission, plan.route.model
        look = partial(with_room, self._fleet, plan, admission.room)
        bound = admission.bounds_workers
        full = bound and not look() and computing(self._fleet.route(plan.request.model))
        if full or not admission.take_place(model):
            paused = partial(self._fleet.is_paused, plan.request.model)
            await admission.wait(model, priority(exchange.cycle.headers), look, paused)
        try:
            await self._pairs.dispatch(plan, exchange)
        finally:
            admission.leave()

    async def pick(self, plan: Plan, headers: Sequence[Field], among: Among, story: Story | None) -> Pick:
        """Choose for a request that somebody else sends; it counts, and has its place, until `Pick.close`.

        `among` returns those of some ranks that may be chosen. Raises NoWorker, QueueFull.
        """
        admission, model = self._admission, plan.route.model
        if not self._chooser.eligible(plan, _NONE):
            await self._chooser.coming(plan)
        look = partial(self._look_among, plan, among)
        ranks = admission.take(model, look())
        if ranks is None:
            paused = partial(self._fleet.is_paused, plan.request.model)
            ranks = await admission.wait(model, priority(headers), look, paused)
        try:
            candidate = self._chooser.choose(plan, ranks, story)
            keys, ticket = self._books.enter(plan, candidate, story)
        except BaseException:
            admission.leave()
            raise
        leave = partial(self._leave_pick, candidate.rank, keys, story)
        return Pick(candidate, self._fleet.worker_of(candidate.rank), ticket, leave)

    def _look_among(self, plan: Plan, among: Among) -> list[Rank]:
        """Return who could take a request; raises NoWorker when those who may never could."""
        ranks = self._chooser.look(plan)
        found = among(ranks)
        if ranks and not found:
            raise nobody(self._fleet, plan)
        return found

    def _leave_pick(self, rank: Rank, keys: Iterable[int], story: Story | None, answered: bool) -> None:
        self._books.leave(rank, keys, story, answered=answered)
        self._admission.leave()

    async def _retry(
        self, plan: Plan, exchange: Exchange, candidate: Candidate, failure: UpstreamFailed
    ) -> None:
        """Send a request that has failed to the next best worker, while none has answered."""
        tried: set[str] = set()
        refused: Refused | None = None
        attempts = sends = 0
        while True:
            attempts += not failure.stale
            sends += failure.sent  # a stale one, too: an engine that dies of a request looks the same
            if isinstance(failure, Refused):
                refused = failure
            if not failure.stale:
                self._give_up(candidate.rank, failure, tried)
            over = self._retries.over(attempts, sends)
            ranks = [] if over else await self._others(plan, tried, failure)
            if not ranks or not self._retries.granted(free=failure.stale):
                raise refused or failure
            candidate = self._chooser.choose(plan, ranks, exchange.story)
            try:
                await self._attempt(plan, candidate, exchange, fresh=failure.stale)
            except UpstreamFailed as error:
                failure = error
            else:
                return

    def _give_up(self, rank: Rank, failure: UpstreamFailed, tried: set[str]) -> None:
        tried.add(rank.worker)
        if not isinstance(failure, Refused):
            self._fleet.failed(rank, failure)

    async def _others(self, plan: Plan, tried: AbstractSet[str], failure: UpstreamFailed) -> list[Rank]:
        """Return the ranks to try next; those of the same worker, after a pause, where there is no other.

        After a refusal nobody who is spared: a fleet that is full must not get its requests several times.
        """
        ranks = self._chooser.eligible(plan, tried)
        if isinstance(failure, Refused):
            ranks = unspared(self._fleet, ranks)
        ranks = self._admission.room(ranks) or ranks  # rather one too many than none
        if ranks or isinstance(failure, Refused | UpstreamTimeout):
            return ranks
        await self._retries.pause(self._rng)
        return self._chooser.eligible(plan, _NONE)

    async def _attempt(
        self, plan: Plan, candidate: Candidate, exchange: Exchange, *, fresh: bool = False
    ) -> None:
        """Send the request to one worker, on a `fresh` connection if told to, and pass its answer on."""
        rank = candidate.rank
        worker = self._fleet.worker_of(rank)
        heard = batches(worker.stream(rank.rank))
        story = exchange.story
        keys, ticket = self._books.enter(plan, candidate, story)
        breaker = rank.breaker
        answered, sound = False, True
        trial = 0

        def on_start() -> None:
            ticket.first_token()
            if story is not None:
                story.computed()
                story.started()
            if sound:
                begun(self._metrics, plan, exchange)
                breaker.good += 1
                if breaker.troubled:
                    worker.health.succeeded(trial)

        try:
            if breaker.troubled:
                trial = worker.health.begun()
            pin = worker.pins[rank.rank]
            headers = laid_over(exchange.headers, pin) if pin else exchange.headers
            exchange.response = response = await worker.upstream.request(
                b"POST", exchange.cycle.target, headers, plan.body, fresh=fresh
            )
            extra = routed(candidate, exchange.id)
            if response.status != _OK:
                sound = await weigh(worker, response, extra, trial)
            relayed = await relay(response, exchange.cycle, extra=extra, on_start=on_start)
            exchange.status = relayed.status
            answered = relayed.status == _OK
            ended(self._metrics, plan, exchange, relayed)
            self._feedback.learn(plan, candidate, relayed, heard, story)
            if relayed.failure is not None:
                note_cut(self._fleet, self._metrics, exchange, rank, relayed.failure, trial)
        except UpstreamFailed as failure:
            failure.trial = trial
            raise
        finally:
            ticket.close()
            if breaker.troubled:
                worker.health.ended(trial)
            self._books.leave(rank, keys, story, answered=answered)
