"""POST /explain: what the router would do with a request, and why; nothing is sent, nothing is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.core.cost import Candidate, Policy, Weights, choose
from router.core.decide import candidates, match, overlap_by_tier
from router.fleet.fleet import Fleet, refusal
from router.prompts.request import kind_of

if TYPE_CHECKING:
    from random import Random

    from router.api.planner import Plan, Planner
    from router.core.rank import Rank


class Explainer:
    """Explains decisions of one fleet under one policy."""

    def __init__(
        self, fleet: Fleet, planner: Planner, *, policy: Policy, weights: Weights, rng: Random
    ) -> None:
        self._fleet = fleet
        self._planner = planner
        self._policy = policy
        self._weights = weights
        self._rng = rng

    async def explain(self, body: bytes) -> dict[str, Any]:
        """Return the answer to /explain for a completions, chat or native body. Raises RouterError."""
        plan = await self._planner.plan(kind_of(body), body)
        ranks = [rank for worker in self._fleet.workers.values() for rank in worker.ranks]
        found = candidates(self._fleet.index, ranks, plan.prompt)
        taking = {id(rank) for rank in plan.route.ranks}
        eligible = [candidate for candidate in found if id(candidate.rank) in taking]
        chosen = choose(self._policy, eligible, self._weights, self._rng).rank if eligible else None
        return {
            "prompt_tokens": plan.prompt.count,
            "exact": plan.exact,
            "why": plan.why,
            "block_size": (chosen or ranks[0]).view.block_size if ranks else None,
            "policy": self._policy.name,
            "chosen": {"worker": chosen.worker, "rank": chosen.rank} if chosen else None,
            "candidates": self._rows(plan, found, taking),
        }

    def _rows(self, plan: Plan, found: list[Candidate], taking: set[int]) -> list[dict[str, Any]]:
        ranks = [candidate.rank for candidate in found]
        matches = match(self._fleet.index, ranks, plan.prompt) if plan.prompt.tokens else {}
        rows = []
        for candidate in found:
            rank = candidate.rank
            one = matches.get((rank.view.block_size or 0, rank.view.bigram))
            tiers = overlap_by_tier(one, rank, candidate.cached_tokens) if one else {"GPU": 0}
            rows.append(self._row(candidate, tiers, eligible=id(rank) in taking, plan=plan))
        return rows

    def _row(
        self, candidate: Candidate, tiers: dict[str, int], *, eligible: bool, plan: Plan
    ) -> dict[str, Any]:
        rank = candidate.rank
        return {
            "worker": rank.worker,
            "rank": rank.rank,
            "overlap_tokens": tiers,
            "predicted_tokens": candidate.predicted_tokens,
            "uncached_tokens": candidate.uncached_tokens,
            "inflight_tokens": rank.load.inflight_tokens,
            "active_requests": rank.load.active_requests,
            "cost": self._policy.cost(candidate, self._weights),
            "eligible": eligible,
            "why": "" if eligible else self._why_not(rank, plan),
        }

    def _why_not(self, rank: Rank, plan: Plan) -> str:
        worker = self._fleet.worker_of(rank)
        if worker.description is not None and worker.description.model != plan.route.model:
            return f"serves another model: {worker.description.model}"
        return refusal(worker) or f"does not serve {plan.request.model}"
