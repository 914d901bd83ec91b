"""From a plan to the worker that should have it, and to the next best one while none has answered.

A request goes to another worker only while not one byte of an answer has come, and when a worker may have it
already, only once: a request that brings workers down must not go round. Whatever ends a request, its load
leaves the ledger.
"""

from __future__ import annotations

import asyncio
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING

from router.api.exchange import REQUEST_ID, Exchange
from router.api.feedback import Feedback, batches
from router.core.decide import decide, predict
from router.core.ledger import Ledger
from router.errors import BadRequest, NoWorker, UpstreamFailed, UpstreamTimeout
from router.prompts.request import Kind
from router.proxy.headers import laid_over
from router.proxy.relay import relay

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet
    from random import Random

    from router.api.planner import Plan, Planner
    from router.core.cost import Candidate, Policy, Weights
    from router.core.rank import Rank
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.proxy.headers import Field

_OK = 200
# How often a request may be written to a worker, whatever became of it there.
_MOST_SENDS = 2
_NONE: frozenset[str] = frozenset()


class Dispatcher:
    """Sends requests to the workers of one fleet under one policy."""

    def __init__(
        self,
        fleet: Fleet,
        planner: Planner,
        metrics: Metrics,
        *,
        policy: Policy,
        weights: Weights,
        retries: int,
        hold_seconds: float,
        rng: Random,
    ) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._feedback = Feedback(fleet, planner, metrics)
        self._policy = policy
        self._weights = weights
        self._retries = retries
        self._hold_seconds = hold_seconds
        self._rng = rng
        self._ledger = Ledger()
        self._clock = asyncio.get_running_loop().time

    async def dispatch(self, plan: Plan, exchange: Exchange) -> None:
        """Have a request answered. Raises RouterError while nothing has been answered."""
        ranks = self._eligible(plan, _NONE) or await self._coming(plan, _NONE, None)
        candidate = self._choose(plan, ranks)
        try:
            await self._attempt(plan, candidate, exchange)
        except UpstreamFailed as failure:
            await self._retry(plan, exchange, candidate, failure)

    async def _retry(
        self, plan: Plan, exchange: Exchange, candidate: Candidate, failure: UpstreamFailed
    ) -> None:
        """Send a request that has failed to the next best worker, while none has answered."""
        tried: set[str] = set()
        attempts = sends = 0
        while True:
            attempts += 1
            sends += failure.sent
            if not failure.stale:
                self._give_up(candidate.rank, failure, tried)
            if attempts > self._retries or sends >= _MOST_SENDS:
                raise failure
            self._metrics.retries += 1
            ranks = self._eligible(plan, tried) or await self._coming(plan, tried, failure)
            candidate = self._choose(plan, ranks)
            try:
                await self._attempt(plan, candidate, exchange, fresh=failure.stale)
            except UpstreamFailed as error:
                failure = error
            else:
                return

    def _give_up(self, rank: Rank, failure: UpstreamFailed, tried: set[str]) -> None:
        tried.add(rank.worker)
        if not isinstance(failure, UpstreamTimeout):
            self._fleet.suspect(rank, failure.message)

    async def _coming(
        self, plan: Plan, tried: AbstractSet[str], failure: UpstreamFailed | None
    ) -> list[Rank]:
        """Return the ranks to choose from where there are none now: waits only while all are paused."""
        if failure is not None:
            raise failure
        await self._fleet.wait_for(plan.request.model, self._hold_seconds)
        ranks = self._eligible(plan, tried)
        if not ranks:
            why = f"no worker that serves {plan.route.model!r} can take this request now"
            raise NoWorker(why, retry_after=1)
        return ranks

    def _choose(self, plan: Plan, ranks: list[Rank]) -> Candidate:
        began = perf_counter()
        chosen = decide(self._fleet.index, ranks, plan.prompt, self._policy, self._weights, self._rng).chosen
        self._metrics.stages["choose"].observe(perf_counter() - began)
        self._metrics.chosen(self._policy.name, chosen.overlap_tokens, plan.prompt.count)
        return chosen

    def _eligible(self, plan: Plan, tried: AbstractSet[str]) -> list[Rank]:
        """Return the ranks that can take the request now: a worker can have changed since it was planned."""
        request, fleet = plan.request, self._fleet
        ranks = fleet.route(request.model).ranks
        if tried:
            ranks = [rank for rank in ranks if rank.worker not in tried]
        if request.kind is Kind.GENERATE:
            ranks = fleet.of_engine(ranks, "sglang")
        adapter = plan.prompt.namespace.lora
        if adapter is not None:
            ranks = fleet.with_adapter(ranks, adapter)
        pinned = request.routed_dp_rank
        if pinned is not None and ranks:
            ranks = [rank for rank in ranks if rank.rank == pinned]
            if not ranks:
                raise BadRequest(f"routed_dp_rank: no worker has a rank {pinned}", param="routed_dp_rank")
        return ranks

    async def _attempt(
        self, plan: Plan, candidate: Candidate, exchange: Exchange, *, fresh: bool = False
    ) -> None:
        """Send the request to one worker, on a `fresh` connection if told to, and pass its answer on."""
        rank = candidate.rank
        worker = self._fleet.worker_of(rank)
        heard = batches(worker.stream(rank.rank))
        keys = predict(candidate, plan.prompt, self._clock()) if plan.prompt.tokens else ()
        ticket = self._ledger.open(rank.load, candidate.uncached_tokens)
        answered = False

        def on_start() -> None:
            ticket.first_token()
            self._metrics.first_byte.observe(perf_counter() - exchange.began)

        try:
            pin = worker.pins[rank.rank]
            headers = laid_over(exchange.headers, pin) if pin else exchange.headers
            exchange.response = response = await worker.upstream.request(
                b"POST", exchange.cycle.target, headers, plan.body, fresh=fresh
            )
            extra = _answer_headers(candidate, exchange.id)
            relayed = await relay(response, exchange.cycle, extra=extra, on_start=on_start)
            exchange.status = relayed.status
            answered = relayed.status == _OK
            self._feedback.learn(plan, candidate, relayed, heard)
        finally:
            ticket.close()
            if not answered:
                _withdraw(rank, keys)


def _answer_headers(candidate: Candidate, request_id: bytes) -> tuple[Field, ...]:
    rank = candidate.rank
    overlap = b"x-kv-router-overlap-tokens", b"%d" % candidate.overlap_tokens
    return (*_names(rank.worker, rank.rank), overlap, (REQUEST_ID, request_id))


@lru_cache(maxsize=4096)
def _names(worker: str, rank: int) -> tuple[Field, Field]:
    return (b"x-kv-router-worker", worker.encode()), (b"x-kv-router-rank", b"%d" % rank)


def _withdraw(rank: Rank, keys: Iterable[int]) -> None:
    """Take back predictions that will not come true."""
    for key in keys:
        rank.view.predicted.settle(key)
