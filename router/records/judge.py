"""Other policies on recorded traffic: who would have had what, and how much would have been computed anew.

What engines really held follows from where requests really went, so it says nothing of another policy. All
policies, the recorded one too, are therefore judged in the same model: a rank holds the prompts that were
sent to it, the least recent are dropped beyond the most blocks that it was ever seen to hold, and it is
emptied when its view was. A prompt takes as long to compute, and its answer as long to come, as recorded.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from functools import singledispatchmethod
from random import Random
from typing import TYPE_CHECKING, Any

from router.core.cost import choose
from router.core.decide import gather
from router.core.index import Index
from router.core.ledger import Ledger
from router.core.rank import Rank
from router.core.view import View
from router.pairs.choice import DECODE, decode_policy
from router.records import entries
from router.records.revived import policy_of, prompt_keys, request_of, weights_of

if TYPE_CHECKING:
    from router.core.cost import Policy
    from router.records.request import Request

_FOREVER = float("inf")
# What empties a cache besides the engine's own AllBlocksCleared.
_LOSSES = frozenset({"restart", "flush", "update_weights", "weights_changed", "paused"})
_PORTION = 1000


@dataclass(slots=True)
class Judged:
    """What a policy makes of a session; tokens are of prompts.

    `uncached_tokens` are those computed anew, by the model. `spread` is the most requests of a rank over the
    mean of all ranks that could be chosen, 1 when all had the same; `token_spread` likewise of tokens
    computed anew. `peak_inflight_tokens`: the most of them that a rank had before it at a time. `agreed`: how
    many of the `choices` were the recorded ones.
    """

    policy: str
    choices: int = 0
    agreed: int = 0
    requests: int = 0
    prompt_tokens: int = 0
    uncached_tokens: int = 0
    spread: float = 0.0
    token_spread: float = 0.0
    peak_inflight_tokens: int = 0

    @property
    def cached_share(self) -> float:
        """Which share of the prompts' tokens would have come from a cache."""
        return 1 - self.uncached_tokens / self.prompt_tokens if self.prompt_tokens else 0.0


@dataclass(slots=True)
class _Tally:
    requests: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    peak: int = 0

    def enter(self, rank: int, tokens: int, inflight: int) -> None:
        self.requests[rank] = self.requests.get(rank, 0) + 1
        self.tokens[rank] = self.tokens.get(rank, 0) + tokens
        self.peak = max(self.peak, inflight)


class Judge:
    """Takes a session's entries in their order. `capacity` in blocks, by rank, where it is known."""

    def __init__(self, session: entries.Session, policy: str, capacity: dict[int, int]) -> None:
        self._policy = policy_of(policy)
        self._weights = weights_of(session.weights)
        self._capacity = capacity
        self._index = Index(session.index_max_blocks)
        self._ledger = Ledger()
        self._rng = Random(0)
        self._ranks: dict[int, Rank] = {}
        self._numbers: dict[Rank, int] = {}
        self._sets: dict[int, tuple[list[int], list[Rank]]] = {}
        self._requests: dict[int, Request] = {}
        self._tally = _Tally()
        self._judged = Judged(policy)

    def result(self) -> Judged:
        """Return what has come out so far."""
        judged, tally = self._judged, self._tally
        could = {rank for numbers, _ in self._sets.values() for rank in numbers}
        judged.spread = _spread(tally.requests, len(could))
        judged.token_spread = _spread(tally.tokens, len(could))
        judged.peak_inflight_tokens = tally.peak
        return judged

    def take(self, entry: entries.Entry) -> None:
        """Do what an entry says, as far as it is about more than the recorded choices."""
        with suppress(LookupError):  # a rank of a part that has been deleted
            self._do(entry)

    @singledispatchmethod
    def _do(self, entry: Any) -> None:
        """Do nothing with what is not about it."""

    @_do.register
    def _ranked(self, entry: entries.Ranked) -> None:
        if entry.rank in self._ranks:
            return
        bound = self._capacity.get(entry.rank) or entry.predicted_bound
        view = View(
            self._index,
            entry.model,
            block_size=entry.block_size,
            predicted_ttl=_FOREVER,
            predicted_bound=bound,
        )
        rank = self._ranks[entry.rank] = Rank(entry.worker, entry.number, view)
        self._numbers[rank] = entry.rank

    @_do.register
    def _inherited(self, entry: entries.Inherited) -> None:
        earlier = next((rank for rank, number in self._numbers.items() if number == entry.rank), None)
        if earlier is not None:
            self._ranks[entry.by].load = earlier.load

    @_do.register
    def _gone(self, entry: entries.Gone) -> None:
        rank = self._ranks.pop(entry.rank, None)
        if rank is not None:
            rank.view.close()

    @_do.register
    def _batch(self, entry: entries.Live) -> None:
        rank = self._ranks.get(entry.rank)
        if rank is None:
            return
        for event in entry.batch.events:
            if isinstance(event, entries.Store):
                rank.view.block_size = event.block_size
            elif isinstance(event, entries.Clear):
                rank.view.reset("all_blocks_cleared")

    @_do.register
    def _reset(self, entry: entries.Reset) -> None:
        rank = self._ranks.get(entry.rank)
        if rank is not None and entry.cause in _LOSSES:
            rank.view.reset(entry.cause)

    @_do.register
    def _weighed(self, entry: entries.Weighed) -> None:
        self._weights = weights_of(entry.weights)

    @_do.register
    def _candidates(self, entry: entries.Ranks) -> None:
        self._sets[entry.number] = entry.ranks, [self._ranks[number] for number in entry.ranks]

    @_do.register
    def _prompt(self, entry: entries.Prompt) -> None:
        keys = prompt_keys(entry)
        known = self._requests.get(entry.request)
        if known is not None:
            known.keys.update(keys)
        else:
            self._requests[entry.request] = request_of(entry, keys)

    @_do.register
    def _chosen(self, entry: entries.Chosen) -> None:
        request = self._requests.get(entry.request)
        if request is None:
            return
        facts = gather(self._index, self._sets[entry.among][1], request.prompt, request.session)
        chosen = choose(self._for(entry.policy), facts, self._weights, self._rng)
        if entry.policy != DECODE.name:
            self._judged.choices += 1
            self._judged.agreed += self._numbers[chosen.rank] == entry.rank
            request.chosen.clear()
        request.chosen.append(chosen)

    def _for(self, recorded: str) -> Policy:
        """Return what chooses where the recorded choice was made by this policy."""
        return decode_policy(self._policy) if recorded == DECODE.name else self._policy

    @_do.register
    def _sent(self, entry: entries.Sent) -> None:
        request = self._requests.get(entry.request)
        if request is None or not request.chosen:
            return
        first = request.chosen[0]
        request.begin(first, self._ledger, entry.now)
        if entry.decode >= 0 and len(request.chosen) > 1:
            request.join(request.chosen[-1], self._ledger, entry.now, keeps=entry.keeps)
        request.chosen.clear()
        judged = self._judged
        judged.requests += 1
        judged.prompt_tokens += request.prompt.count
        judged.uncached_tokens += first.uncached_tokens
        load = first.rank.load
        self._tally.enter(self._numbers[first.rank], first.uncached_tokens, load.inflight_tokens)

    @_do.register
    def _computed(self, entry: entries.Computed) -> None:
        request = self._requests.get(entry.request)
        if request is not None and request.predicted:
            request.compute()

    @_do.register
    def _over(self, entry: entries.Over) -> None:
        request = self._requests.get(entry.request)
        if request is not None:
            request.end(answered=entry.answered)

    @_do.register
    def _ended(self, entry: entries.Ended) -> None:
        self._requests.pop(entry.request, None)

    @_do.register
    def _swept(self, _: entries.Swept) -> None:
        self._index.sweep(_PORTION)


def _spread(amounts: dict[int, int], ranks: int) -> float:
    """Return the largest over the mean, 1 when there is nothing."""
    total = sum(amounts.values())
    return max(amounts.values()) * ranks / total if total else 1.0
