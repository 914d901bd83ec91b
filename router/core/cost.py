"""Policies: which rank gets a request.

A policy is a cost function (`costs`) and how the choice is made of what it says. Of several that cost the
same, the one chosen longest ago takes the request, so that equal workers fill evenly; what is equal even then
is decided at random, by a generator that the caller owns, so that several routers do not choose alike. A new
policy is one function in `costs`, its terms in `terms`, and one row in POLICIES.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, TypeAlias

from router.core import costs, terms
from router.core.costs import Amounts
from router.core.facts import Candidate, Facts
from router.core.weights import Weights

if TYPE_CHECKING:
    from random import Random

    import numpy as np
    from numpy.typing import NDArray

    from router.core.board import Columns
    from router.core.terms import Terms

Costs: TypeAlias = Callable[[Facts, Weights], Amounts]

__all__ = ["DEFAULT_POLICY", "POLICIES", "Costs", "Policy", "Weights", "choose"]


@dataclass(frozen=True, slots=True)
class Policy:
    """A cost function; `terms` shows what goes into the cost of one rank.

    `sample`: how many candidates are looked at, drawn at random, 0 for all. `draws`: ties are decided at
    random alone. `warms`: with a temperature, a dearer rank may be drawn. `uses_prompt`: whether the prompt's
    tokens matter to it, so that guessing at them is worth the while; `uses_session`: whether the client's
    name for the conversation does.
    """

    name: str
    costs: Costs
    terms: Callable[[Facts, Weights, int], Terms]
    sample: int = 0
    draws: bool = False
    warms: bool = False
    uses_prompt: bool = True
    uses_session: bool = False


DEFAULT_POLICY = "kv"
POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("kv", costs.kv, terms.kv),
        Policy("round_robin", costs.round_robin, terms.round_robin, uses_prompt=False),
        Policy("random", costs.random, terms.random, draws=True, uses_prompt=False),
        Policy("power_of_two", costs.least_requests, terms.least_requests, sample=2, uses_prompt=False),
        Policy("least_requests", costs.least_requests, terms.least_requests, uses_prompt=False),
        Policy("least_tokens", costs.least_tokens, terms.least_tokens),
        Policy("prefix_hash", costs.prefix_hash, terms.prefix_hash),
        Policy("session", costs.session, terms.session, uses_session=True),
        Policy("lmetric", costs.lmetric, terms.lmetric),
        Policy("dynamo", costs.dynamo, terms.dynamo, warms=True),
        Policy("cache_aware", costs.cache_aware, terms.cache_aware),
        Policy("sticky", costs.sticky, terms.sticky),
        Policy("preble", costs.preble, terms.preble),
    )
}


def choose(policy: Policy, facts: Facts, weights: Weights, rng: Random) -> Candidate:
    """Return the candidate of least cost. There must be one.

    Cost: one call of the policy's function, and about 1 us.
    """
    count = len(facts.uncached)
    if count == 1:
        return facts.candidate(0)
    if 0 < policy.sample < count:
        facts = facts.only(rng.sample(range(count), policy.sample))
    amounts = policy.costs(facts, weights)
    if policy.warms and weights.temperature:
        return facts.candidate(_warm(amounts, weights.temperature, rng))
    columns = facts.lineup.columns
    if columns is not None:
        return facts.candidate(_of_many(columns, columns.of(amounts), rng, draws=policy.draws))
    return facts.candidate(_of_few(facts, list(amounts), rng, draws=policy.draws))


def _of_many(columns: Columns, amounts: NDArray[np.float64], rng: Random, *, draws: bool) -> int:
    tied = (amounts == amounts.min()).nonzero()[0]
    if len(tied) > 1 and not draws:
        turns = columns.now().last_dispatch[tied]
        tied = tied[turns == turns.min()]
    return int(tied[0]) if len(tied) == 1 else rng.choice(tied.tolist())


def _of_few(facts: Facts, amounts: list[float], rng: Random, *, draws: bool) -> int:
    least = min(amounts)
    if amounts.count(least) == 1:
        return amounts.index(least)
    tied = [at for at, amount in enumerate(amounts) if amount == least]
    if not draws:
        loads = facts.loads
        oldest = min(loads[at].last_dispatch for at in tied)
        tied = [at for at in tied if loads[at].last_dispatch == oldest]
    return rng.choice(tied)


def _warm(amounts: Amounts, temperature: float, rng: Random) -> int:
    """Draw a position: the likelier the cheaper, by a softmax over the costs as shares of their spread."""
    least = min(amounts)
    spread = (max(amounts) - least) or 1.0
    odds = [exp((least - amount) / spread / temperature) for amount in amounts]
    return rng.choices(range(len(odds)), odds)[0]
