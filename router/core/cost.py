"""Policies: what it would cost to send a request to a rank, and the choice of the least.

A policy is a pure function of one candidate's facts. Of several that cost the same, the one chosen longest
ago takes the request, so that equal workers fill evenly; what is equal even then is decided at random, by a
generator that the caller owns, so that several routers do not choose alike. A new policy is one function
here and one row in POLICIES. Costs are in tokens where a policy has a unit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from router.core.rank import Rank

if TYPE_CHECKING:
    from random import Random


class Weights(msgspec.Struct):
    """`uncached`: how often an own uncached token counts. `active`: tokens a running request counts for.

    Why own tokens weigh 3x: at 1x a fixed corpus near capacity is replicated and evicts itself (POLICY.md).
    """

    uncached: float = 3.0
    active: float = 512.0


class Candidate(msgspec.Struct, gc=False):
    """What a policy may know of a rank, for one request; all in tokens.

    `cached_tokens` counts the usable prefix the rank has said it holds, `predicted_tokens` what is
    expected to follow it there; `uncached_tokens` is the rest of the prompt.
    """

    rank: Rank
    cached_tokens: int
    predicted_tokens: int
    uncached_tokens: int

    @property
    def overlap_tokens(self) -> int:
        """The prefix that the engine is expected to report as cached."""
        return self.cached_tokens + self.predicted_tokens


Cost: TypeAlias = Callable[[Candidate, Weights], float]


@dataclass(frozen=True, slots=True)
class Policy:
    """A cost function. `sample`: how many candidates are looked at, drawn at random, 0 for all.

    `draws`: ties are decided at random alone. `uses_overlap`: whether what ranks hold matters to it, so that
    guessing at it is worth the while.
    """

    name: str
    cost: Cost
    sample: int = 0
    draws: bool = False
    uses_overlap: bool = True


def kv(candidate: Candidate, weights: Weights) -> float:
    """Least work: prefill in flight, own prefill weighed up, and a share for each running request."""
    load = candidate.rank.load
    return (
        load.inflight_tokens
        + weights.uncached * candidate.uncached_tokens
        + weights.active * load.active_requests
    )


def round_robin(candidate: Candidate, _weights: Weights) -> float:
    """The rank that was chosen longest ago."""
    return candidate.rank.load.last_dispatch


def random(_candidate: Candidate, _weights: Weights) -> float:
    """All alike; the draw decides."""
    return 0.0


def least_requests(candidate: Candidate, _weights: Weights) -> float:
    """Fewest requests running."""
    return candidate.rank.load.active_requests


def least_tokens(candidate: Candidate, _weights: Weights) -> float:
    """Fewest uncached tokens once this request is there."""
    return candidate.rank.load.inflight_tokens + candidate.uncached_tokens


def lmetric(candidate: Candidate, _weights: Weights) -> float:
    """LMetric: prefill tokens there with this request, times requests there with this request."""
    load = candidate.rank.load
    return (load.inflight_tokens + candidate.uncached_tokens) * (load.active_requests + 1)


DEFAULT_POLICY = "kv"
POLICIES: dict[str, Policy] = {
    policy.name: policy
    for policy in (
        Policy("kv", kv),
        Policy("round_robin", round_robin, uses_overlap=False),
        Policy("random", random, draws=True, uses_overlap=False),
        Policy("power_of_two", least_requests, sample=2, uses_overlap=False),
        Policy("least_requests", least_requests, uses_overlap=False),
        Policy("least_tokens", least_tokens),
        Policy("lmetric", lmetric),
    )
}


def choose(policy: Policy, candidates: Sequence[Candidate], weights: Weights, rng: Random) -> Candidate:
    """Return the candidate of least cost. Raises IndexError when there is none.

    Cost: one call of the policy's function per candidate.
    """
    if policy.sample and len(candidates) > policy.sample:
        candidates = rng.sample(candidates, policy.sample)
    if len(candidates) == 1:
        return candidates[0]
    cost = policy.cost
    costs = [cost(candidate, weights) for candidate in candidates]
    least = min(costs)
    if costs.count(least) == 1:
        return candidates[costs.index(least)]
    tied = [candidate for candidate, amount in zip(candidates, costs, strict=True) if amount == least]
    if not policy.draws:
        oldest = min(candidate.rank.load.last_dispatch for candidate in tied)
        tied = [candidate for candidate in tied if candidate.rank.load.last_dispatch == oldest]
    return rng.choice(tied)
