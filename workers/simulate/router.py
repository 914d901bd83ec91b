"""One router in virtual time: the core of the real one, fed directly.

What `router.api` does around it is done here in its order: match, choose, predict, enter in the ledger, and
hold the engine's own count of cached tokens against the claim.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.core.cost import choose
from router.core.decide import gather, predict
from router.core.index import Index
from router.core.ledger import Ledger, Load, Ticket
from router.core.rank import Rank
from router.core.view import View

if TYPE_CHECKING:
    from random import Random

    from router.core.blocks import PromptBlocks
    from router.core.cost import Policy, Weights
    from router.core.events import Batch
    from router.core.facts import Candidate
    from workers.engine.load import Load as EngineLoad

MODEL = "simulated"
_SWEEP = 4096
_EXPIRE_SECONDS = 1.0


@dataclass(slots=True)
class Sent:
    """A request under way: where to, and what it is entered as. `heard`: batches of that worker by then."""

    candidate: Candidate
    prompt: PromptBlocks
    ticket: Ticket
    heard: int


class SimRouter:
    """A router process of its own: index, views, predictions, ledger."""

    def __init__(
        self,
        workers: int,
        policy: Policy,
        weights: Weights,
        rng: Random,
        *,
        page_size: int,
        ttl: float,
        bound: int,
    ) -> None:
        """`ttl` in seconds and `bound` in blocks are those of predicted entries."""
        self.index = Index()
        self._policy, self._weights, self._rng = policy, weights, rng
        self._ledger, self._peers = Ledger(), Ledger()
        self._guests = [Load() for _ in range(workers)]
        self._heard = [0] * workers
        self._expired = 0.0
        self.ranks = [
            Rank(
                str(number),
                0,
                View(self.index, MODEL, block_size=page_size, predicted_ttl=ttl, predicted_bound=bound),
            )
            for number in range(workers)
        ]

    def route(self, prompt: PromptBlocks, session: bytes | None, now: float) -> Sent:
        """Choose a worker for a prompt and enter it there."""
        if now - self._expired >= _EXPIRE_SECONDS:
            self._expire(now)
        facts = gather(self.index, self.ranks, prompt, session)
        chosen = choose(self._policy, facts, self._weights, self._rng)
        if prompt.tokens:
            predict(chosen, prompt, now)
        ticket = self._ledger.open(chosen.rank.load, chosen.uncached_tokens, prompt.count)
        return Sent(chosen, prompt, ticket, self._heard[int(chosen.rank.worker)])

    def welcome(self, sent: Sent, now: float) -> Ticket:
        """Enter what another router has sent, as load and as a prediction."""
        number = int(sent.candidate.rank.worker)
        view = self.ranks[number].view
        if sent.prompt.tokens:
            view.predicted.add(sent.prompt.keys(view.block_size or 1, bigram=view.bigram), now)
        return self._peers.open(self._guests[number], sent.candidate.uncached_tokens)

    def note_peers(self, worker: int) -> None:
        """Let what the other routers have on a worker count, as it is now."""
        guests = self._guests[worker]
        self.ranks[worker].load.hear(guests.inflight_tokens, guests.active_requests)

    def note_engine(self, worker: int, said: EngineLoad) -> None:
        """Take a worker's own word on its load, as `router.fleet.loads` does."""
        load = self.ranks[worker].load
        load.usage = said.used_tokens / said.capacity_tokens
        load.capacity_tokens = said.capacity_tokens
        load.hear_engine(said.waiting_uncached, said.running + said.waiting)

    def _expire(self, now: float) -> None:
        self._expired = now
        for rank in self.ranks:
            rank.view.predicted.expire(now)

    def hear(self, worker: int, batch: Batch) -> None:
        """Apply a batch of a worker's events."""
        self._heard[worker] += 1
        self.ranks[worker].view.apply(batch)
        self._sweep()

    def _sweep(self) -> None:
        while self.index.sweep(_SWEEP):
            pass

    def learn(self, sent: Sent, cached: int) -> None:
        """Hold a claim, and a prediction, against the engine's own count of cached tokens.

        As `router.api.feedback` does, without beginning anew after many: no batch is ever lost here.
        """
        chosen = sent.candidate
        view, size = chosen.rank.view, chosen.rank.view.block_size or 1
        unheard = self._heard[int(chosen.rank.worker)] == sent.heard
        if cached + size <= chosen.cached_tokens and unheard:
            view.contradict(sent.prompt.keys(size, bigram=view.bigram), cached // size)
            self._sweep()
        elif chosen.predicted_tokens and cached >= chosen.cached_tokens:
            view.predicted.learn(min(1.0, (cached - chosen.cached_tokens) / chosen.predicted_tokens))
