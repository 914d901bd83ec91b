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

from router.core.cost import Policy, choose
from router.core.decide import gather
from router.core.facts import Candidate, Facts
from router.core.rank import Rank
from router.fleet.route import Halves

if TYPE_CHECKING:
    from random import Random

    from router.core.blocks import PromptBlocks
    from router.core.cost import Weights
    from router.core.index import Index
    from router.core.terms import Terms
    from router.core.wish import Wish


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
    among: Facts | None = None
    partners: Facts | None = None


def _decode(facts: Facts, weights: Weights) -> list[float]:
    """Tokens that have to travel, and a share for each running request; prefill in flight is elsewhere."""
    each = weights.active
    pairs = zip(facts.loads, facts.uncached, strict=True)
    return [tokens + each * load.active_requests for load, tokens in pairs]


def _decode_terms(facts: Facts, weights: Weights, at: int) -> Terms:
    return {"uncached": facts.uncached[at], "active": weights.active * facts.loads[at].active_requests}


DECODE = Policy("decode", _decode, _decode_terms)


def decode_policy(policy: Policy) -> Policy:
    """Return how decode ranks are chosen; a policy that looks at load alone is good for them as it is."""
    return DECODE if policy.uses_prompt else policy


@dataclass(frozen=True, slots=True)
class Judge:
    """Chooses as a request wishes. `min_uncached` in tokens, 0: no prompt is too short for a pair."""

    index: Index
    weights: Weights
    rng: Random
    min_uncached: int = 0

    def choose(self, options: Options, prompt: PromptBlocks, wish: Wish) -> Choice | None:
        """Return the choice of least cost; None when there is nobody."""
        short = self._short(options, prompt, wish)
        if short is not None:
            return Choice(choose(wish.policy, short, self.weights, self.rng), among=short)
        first = [rank for halves in options.pairs for rank in halves.prefill] + options.alone
        if not first:
            return None
        facts = gather(self.index, first, prompt, wish.session)
        best = choose(wish.policy, facts, self.weights, self.rng)
        partners = next((halves.decode for halves in options.pairs if best.rank in halves.prefill), None)
        if partners is None:
            return Choice(best, among=facts)
        decode = gather(self.index, partners, prompt, wish.session)
        chosen = choose(decode_policy(wish.policy), decode, self.weights, self.rng)
        return Choice(best, chosen, facts, decode)

    def _short(self, options: Options, prompt: PromptBlocks, wish: Wish) -> Facts | None:
        """Return the ranks that would have so little to compute that no prefill worker is needed, if any."""
        if not self.min_uncached:
            return None
        facts = gather(self.index, options.alone + options.able, prompt, wish.session)
        few = [at for at, tokens in enumerate(facts.uncached) if tokens < self.min_uncached]
        return facts.only(few) if few else None
