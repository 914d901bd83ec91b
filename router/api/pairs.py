"""From a plan to the pair of workers that should have it, and to another while none has answered.

As a request for one worker, a pair's goes on only while not one byte of an answer has come, and may be
written twice at most, to whichever pairs. Another half takes the place of one that was lost or has refused;
where it cannot be told which half it was, both make room for others, as far as there are any: a decode worker
whose prefill worker dies answers with an error, and the other way round.
"""

from __future__ import annotations

import asyncio
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from router.api.answers import routed, send_answer
from router.api.attempt import Attempt, Books, pair_headers
from router.api.eligible import copies_of, missing, options, unspared
from router.api.errand import Errand
from router.api.refusal import Refused, retry_after
from router.core.breaker import Failure
from router.core.decide import make_keys
from router.engines.sglang import BOOTSTRAP_PORT
from router.errors import NoWorker, OutOfDescriptors, UpstreamFailed, UpstreamTimeout
from router.pairs import bootstrap, transfer
from router.pairs.choice import decode_policy
from router.pairs.half import Half, HalfFailed
from router.proxy.disconnect import ClientGone

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from router.api.admission import Admission
    from router.api.exchange import Exchange
    from router.api.feedback import Feedback
    from router.api.planner import Plan
    from router.api.retries import Retries
    from router.core.accounts import Accounts
    from router.core.cost import Policy
    from router.core.facts import Candidate
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.observe.story import Story
    from router.pairs.choice import Choice, Judge

    Alone = Callable[..., Awaitable[None]]

_PROTOCOLS = {"sglang": bootstrap.serve, "vllm": transfer.serve}


class PairDispatcher:
    """Sends requests of models that have prefill or decode workers; `alone` sends one to a single worker."""

    def __init__(
        self,
        fleet: Fleet,
        metrics: Metrics,
        feedback: Feedback,
        accounts: Accounts,
        judge: Judge,
        alone: Alone,
        *,
        retries: Retries,
        admission: Admission,
    ) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._books = Books(fleet, accounts, feedback, metrics)
        self._judge = judge
        self._alone = alone
        self._retries = retries
        self._admission = admission
        self._clock = asyncio.get_running_loop().time

    async def dispatch(self, plan: Plan, exchange: Exchange) -> None:
        """Have a request answered. Raises RouterError while nothing has been answered."""
        among = partial(unspared, self._fleet)
        errand = Errand(plan, exchange, copies_of(plan), self._admission.room, among)
        choice: Choice | None = self._choose(errand) or await self._coming(errand)
        while choice is not None:
            try:
                await self._attempt(errand, choice)
            except HalfFailed as failed:
                choice = await self._next(errand, choice, failed)
            else:
                return

    async def _next(self, errand: Errand, choice: Choice, failed: HalfFailed) -> Choice | None:
        """Return what to try after a failure; None: the client has been told of it."""
        errand.failed(failed, choice)
        self._note(failed)
        if errand.exchange.cycle.disconnected:
            raise ClientGone from failed
        final = failed.final or isinstance(failed.failure, OutOfDescriptors)
        over = final or self._retries.over(errand.attempts, errand.sends)
        again = None if over else await self._again(errand, failed)
        if again is not None and self._retries.granted():
            return again
        self._give_up(failed, choice, errand.exchange)
        return None

    async def _again(self, errand: Errand, failed: HalfFailed) -> Choice | None:
        """Return what to try next; the same half, after a pause, where it was lost and there is no other."""
        choice = self._choose(errand)
        if choice is not None and failed.shared and errand.shuns(choice):
            return None
        if choice or failed.refused or isinstance(failed.failure, Refused | UpstreamTimeout):
            return choice
        await self._retries.pause(self._judge.rng)
        errand.lost.clear()
        return self._choose(errand)

    def _note(self, failed: HalfFailed) -> None:
        """Take note of what a failure says of the half's worker."""
        answer, rank = failed.answer, failed.half.rank
        health = self._fleet.worker_of(rank).health
        if answer is None:
            if not isinstance(failed.failure, Refused):
                self._fleet.failed(rank, failed.failure)
        elif failed.refused:
            health.refused(retry_after(answer.headers))
        elif failed.own and answer.code in health.rules.statuses:
            health.failed(Failure.STATUS, f"it answers {answer.code}", failed.failure.trial)

    def _choose(self, errand: Errand) -> Choice | None:
        began = perf_counter()
        who = options(self._fleet, errand.plan, errand.copies, errand.among)
        make_keys(who.ranks(), errand.plan.prompt)
        hashed = perf_counter()
        choice = self._judge.choose(who, errand.plan.prompt, errand.plan.wish)
        self._metrics.stages["hash"].observe(hashed - began)
        self._metrics.stages["match"].observe(perf_counter() - hashed)
        if choice is not None and errand.exchange.story is not None:
            self._tell(choice, errand.plan.wish.policy, errand.exchange.story, began)
        return choice

    def _tell(self, choice: Choice, policy: Policy, story: Story, began: float) -> None:
        weights = self._judge.weights
        if choice.among is not None:
            story.chosen(policy, weights, choice.among, choice.first, began)
        if choice.decode is not None and choice.partners is not None:
            story.chosen(decode_policy(policy), weights, choice.partners, choice.decode, began)

    async def _coming(self, errand: Errand) -> Choice:
        """Return the choice where there is none now: waits only for paused workers."""
        model = errand.plan.request.model
        route = self._fleet.route(model)
        if self._fleet.is_paused(model):
            began = perf_counter()
            route = await self._fleet.wait_for(model, self._admission.hold_seconds)
            self._metrics.stages["wait"].observe(perf_counter() - began)
        choice = self._choose(errand)
        if choice is None:
            raise NoWorker(missing(route), retry_after=1)
        return choice

    async def _attempt(self, errand: Errand, choice: Choice) -> None:
        policy, prompt = errand.plan.wish.policy.name, errand.plan.prompt
        model = errand.plan.route.model
        self._metrics.chosen(model, policy, choice.first.overlap_tokens, prompt.count)
        first = self._half(choice.first, errand.exchange)
        if choice.decode is None:
            await self._by_one(errand, choice.first, first)
            return
        attempt = Attempt(errand, choice.first, choice.decode, self._books, self._clock())
        try:
            engine = self._fleet.engine_of(first.rank) or "sglang"
            await _PROTOCOLS[engine](first, self._half(choice.decode, errand.exchange), attempt)
        except HalfFailed as failed:
            failed.failure.trial = attempt.trial(failed.half.rank)
            raise
        finally:
            attempt.close()

    async def _by_one(self, errand: Errand, candidate: Candidate, half: Half) -> None:
        """Have a request answered by one worker; on a new connection where an idle one had been closed."""
        plan, exchange = errand.plan, errand.exchange
        try:
            try:
                await self._alone(plan, candidate, exchange)
            except UpstreamFailed as failure:
                if not failure.stale:
                    raise
                await self._alone(plan, candidate, exchange, fresh=True)
        except UpstreamFailed as failure:
            raise HalfFailed(half, failure) from failure

    def _half(self, candidate: Candidate, exchange: Exchange) -> Half:
        rank = candidate.rank
        worker = self._fleet.worker_of(rank)
        port = worker.description.bootstrap_port if worker.description is not None else None
        return Half(
            rank,
            worker.upstream,
            exchange.cycle.target,
            exchange.headers,
            pin=worker.pins[rank.rank],
            ranks=len(worker.pins),
            bootstrap=(worker.spec.host, port or BOOTSTRAP_PORT),
        )

    def _give_up(self, failed: HalfFailed, choice: Choice, exchange: Exchange) -> None:
        """Let the client have what the worker said, unchanged, or else the router's own word for it."""
        if failed.answer is None:
            raise failed.failure
        first, decode = choice.first, choice.decode
        headers = pair_headers(first, decode, exchange.id) if decode else routed(first, exchange.id)
        exchange.status = failed.answer.status
        if exchange.story is not None:
            exchange.story.failed(failed.failure)  # its status can be a stream's, which was sent too early
        send_answer(exchange.cycle, failed.answer, headers)
