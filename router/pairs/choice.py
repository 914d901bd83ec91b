"""Which pair should have a request, or which worker that needs no other.

A prefill rank costs what any rank does, by the policy: what it holds of the prompt, and its load. It competes
with the ranks that do all of a request: those carry the load of decoding too, a prefill rank only that of
prompts. The decode rank is then chosen among those of the same engine, by its load, and by what it holds
where it says so: what it holds need not travel.

A prompt of which little would have to be computed is not worth the way: below `min_uncached` tokens it goes
to a rank that does all of it. That counts what that rank itself would have to compute, since what disturbs
the decoding of others there is that, and not what a prefill worker would have had to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from router.core.cost import Candidate, Policy, choose
from router.core.decide import candidates
from router.core.rank import Rank
from router.fleet.route import Halves

if TYPE_CHECKING:
    from random import Random

    from router.core.blocks import PromptBlocks
    from router.core.cost import Weights
    from router.core.index import Index


class Options(msgspec.Struct):
    """Who may take one request now.

    `alone`: ranks that do all of it; `able`: decode ranks that could, if the prompt is short; `pairs`: halves
    of one engine each, all with ranks for both.
    """

    alone: list[Rank]
    able: list[Rank]
    pairs: list[Halves]

    def ranks(self) -> list[Rank]:
        """Return them all."""
        halves = [rank for each in self.pairs for rank in (*each.prefill, *each.decode)]
        return [*self.alone, *self.able, *halves]


class Choice(msgspec.Struct):
    """The rank that computes the prompt, and the one that answers if that is another one.

    `among` are those that `first` was chosen of, `partners` those of `decode`.
    """

    first: Candidate
    decode: Candidate | None = None
    among: list[Candidate] = []
    partners: list[Candidate] = []


def _decode(candidate: Candidate, weights: Weights) -> float:
    """Tokens that have to travel, and a share for each running request; prefill in flight is elsewhere."""
    return candidate.uncached_tokens + weights.active * candidate.rank.load.active_requests


_DECODE = Policy("decode", _decode)


@dataclass(frozen=True, slots=True)
class Judge:
    """Chooses under one policy. `min_uncached` in tokens, 0: no prompt is too short for a pair."""

    index: Index
    policy: Policy
    weights: Weights
    rng: Random
    min_uncached: int = 0

    @property
    def decode_policy(self) -> Policy:
        """How decode ranks are chosen; a policy that looks at load alone is good for them as it is."""
        return _DECODE if self.policy.uses_overlap else self.policy

    def choose(self, options: Options, prompt: PromptBlocks) -> Choice | None:
        """Return the choice of least cost; None when there is nobody."""
        short = self._short(options, prompt)
        if short:
            return Choice(self._best(self.policy, short), among=short)
        first = [rank for halves in options.pairs for rank in halves.prefill] + options.alone
        if not first:
            return None
        found = candidates(self.index, first, prompt)
        best = self._best(self.policy, found)
        partners = next((halves.decode for halves in options.pairs if best.rank in halves.prefill), None)
        if partners is None:
            return Choice(best, among=found)
        decoding = candidates(self.index, partners, prompt)
        return Choice(best, self._best(self.decode_policy, decoding), found, decoding)

    def _short(self, options: Options, prompt: PromptBlocks) -> list[Candidate]:
        """Return the ranks that would have so little to compute that no prefill worker is needed."""
        if not self.min_uncached:
            return []
        found = candidates(self.index, options.alone + options.able, prompt)
        return [candidate for candidate in found if candidate.uncached_tokens < self.min_uncached]

    def _best(self, policy: Policy, found: list[Candidate]) -> Candidate:
        return choose(policy, found, self.weights, self.rng)
