"""One try of a pair: what it enters in the ledger and in the views, and what is learned from it.

The prefill rank carries the prompt's uncached tokens until its half is over, the decode rank a running
request until the end. What the prefill rank has computed it holds, whatever becomes of the decode rank.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.api.answers import decode_names, routed
from router.api.cut import note_cut
from router.api.feedback import batches
from router.api.tempo import begun, ended
from router.proxy.relay import Relayed, relay

if TYPE_CHECKING:
    from router.api.errand import Errand
    from router.api.feedback import Feedback
    from router.api.planner import Plan
    from router.core.accounts import Accounts
    from router.core.facts import Candidate
    from router.core.rank import Rank
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.proxy.headers import Field
    from router.proxy.response import Response

_OK = 200


@dataclass(frozen=True, slots=True)
class Books:
    """Where attempts are entered, and who learns from them."""

    fleet: Fleet
    accounts: Accounts
    feedback: Feedback
    metrics: Metrics


class Attempt:
    """A `Job` of `router.pairs`. It must be closed in a `finally`."""

    def __init__(
        self, errand: Errand, prefill: Candidate, decode: Candidate, books: Books, now: float
    ) -> None:
        self._plan = plan = errand.plan
        self.body = plan.body
        self.prompts = plan.request.prompts
        self.copies = errand.copies
        self._exchange = errand.exchange
        self._story = errand.exchange.story
        self._books = books
        self._first = prefill
        self._decode = decode.rank
        self._headers = pair_headers(prefill, decode, errand.exchange.id)
        self._computed = self._told = self._ended_well = False
        self._enter(plan, decode, now)

    def _enter(self, plan: Plan, decode: Candidate, now: float) -> None:
        fleet, accounts, first = self._books.fleet, self._books.accounts, self._first
        self._trials = {rank: self._begun(rank) for rank in (first.rank, self._decode)}
        self._heard = batches(fleet.stream_of(first.rank))
        context = plan.prompt.count
        self._to_compute = accounts.open(first.rank.load, first.uncached_tokens, context)
        self._running = accounts.open(self._decode.load, 0, context)
        self._predicted = accounts.predict(first, plan.prompt, now)
        keeps = _keeps_cache(fleet, self._decode)
        self._fetched = accounts.predict(decode, plan.prompt, now) if keeps else ()
        if self._story is not None:
            self._story.sent(first, now, decode, keeps=keeps)

    def _begun(self, rank: Rank) -> int:
        return self._books.fleet.worker_of(rank).health.begun() if rank.breaker.troubled else 0

    def trial(self, rank: Rank) -> int:
        """Return what the breaker of a half's worker had said when it began."""
        return self._trials[rank]

    @property
    def answered(self) -> bool:
        """See `Job`."""
        return self._exchange.cycle.response_started

    def prefilled(self, usage: bytes | None = None) -> None:
        """See `Job`; counts that the prefill worker tells itself are the ones to learn from."""
        self._compute()
        if usage is not None:
            self._told = True
            told = Relayed(_OK, (usage,))
            self._books.feedback.learn(self._plan, self._first, told, self._heard, self._story)

    async def pass_on(self, response: Response) -> Relayed:
        """See `Job`."""
        self._exchange.response = response
        relayed = await relay(response, self._exchange.cycle, extra=self._headers, on_start=self._begin)
        self._exchange.status = relayed.status
        self._ended_well = relayed.status == _OK
        ended(self._books.metrics, self._plan, self._exchange, relayed)
        if not self._told:
            self._books.feedback.learn(self._plan, self._first, relayed, self._heard, self._story)
        if relayed.failure is not None:
            trial = self._trials[self._decode]
            books = self._books
            note_cut(books.fleet, books.metrics, self._exchange, self._decode, relayed.failure, trial)
        return relayed

    def _begin(self) -> None:
        self._compute()
        self._good(self._decode)
        begun(self._books.metrics, self._plan, self._exchange)
        if self._story is not None:
            self._story.started()

    def _compute(self) -> None:
        """Note that the prompt has been computed."""
        if not self._computed:
            self._computed = True
            self._to_compute.close()
            if self._story is not None:
                self._story.computed()
            self._good(self._first.rank)

    def _good(self, rank: Rank) -> None:
        breaker = rank.breaker
        breaker.good += 1
        if breaker.troubled:
            self._books.fleet.worker_of(rank).health.succeeded(self._trials[rank])

    def close(self) -> None:
        """Give back the load, and take back what will not come true."""
        self._to_compute.close()
        self._running.close()
        for rank in (self._first.rank, self._decode):
            if rank.breaker.troubled:
                self._books.fleet.worker_of(rank).health.ended(self._trials[rank])
        if not self._computed:
            self._books.accounts.withdraw(self._first.rank, self._predicted)
        if not self._ended_well:
            self._books.accounts.withdraw(self._decode, self._fetched)
        if self._story is not None:
            self._story.over(answered=self._ended_well)


def pair_headers(prefill: Candidate, decode: Candidate, request_id: bytes) -> tuple[Field, ...]:
    """Return what the client is told: overlap counts where the prompt is computed."""
    return (*routed(prefill, request_id), *decode_names(decode.rank.worker, decode.rank.rank))


def _keeps_cache(fleet: Fleet, rank: Rank) -> bool:
    """Whether a decode rank holds what it has fetched: SGLang's only with its decode radix cache on.

    One that has no such cache publishes nothing, so what has published has one.
    """
    return fleet.engine_of(rank) != "sglang" or batches(fleet.stream_of(rank)) > 0
