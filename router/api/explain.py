"""POST /explain: what the router would do with a request, and why; nothing is sent, nothing is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.api.eligible import copies_of, missing, options
from router.core.decide import candidates, match, overlap_by_tier
from router.fleet.route import refusal
from router.prompts.request import kind_of

if TYPE_CHECKING:
    from router.api.planner import Plan, Planner
    from router.core.cost import Candidate
    from router.core.rank import Rank
    from router.fleet.fleet import Fleet
    from router.fleet.spec import Role
    from router.pairs.choice import Judge


class Explainer:
    """Explains decisions of one fleet under one policy."""

    def __init__(self, fleet: Fleet, planner: Planner, judge: Judge) -> None:
        self._fleet = fleet
        self._planner = planner
        self._judge = judge

    async def explain(self, body: bytes) -> dict[str, Any]:
        """Return the answer to /explain for a completions, chat or native body. Raises RouterError."""
        plan = await self._planner.plan(kind_of(body), body)
        ranks = self._fleet.ranks()
        found = candidates(self._fleet.index, ranks, plan.prompt)
        who = options(self._fleet, plan, copies_of(plan), list)
        choice = self._judge.choose(who, plan.prompt)
        chosen = choice.first.rank if choice else None
        return {
            "prompt_tokens": plan.prompt.count,
            "exact": plan.exact,
            "why": plan.why,
            "block_size": (chosen or ranks[0]).view.block_size if ranks else None,
            "policy": self._judge.policy.name,
            "chosen": _named(chosen),
            "decode": _named(choice.decode.rank if choice and choice.decode else None),
            "candidates": self._rows(plan, found, {id(rank) for rank in who.ranks()}),
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
        role = self._role(rank)
        policy = self._judge.decode_policy if role == "decode" else self._judge.policy
        return {
            "worker": rank.worker,
            "rank": rank.rank,
            "role": role,
            "overlap_tokens": tiers,
            "predicted_tokens": candidate.predicted_tokens,
            "uncached_tokens": candidate.uncached_tokens,
            "inflight_tokens": rank.load.inflight_tokens,
            "active_requests": rank.load.active_requests,
            "cost": policy.cost(candidate, self._judge.weights),
            "eligible": eligible,
            "why": "" if eligible else self._why_not(rank, plan),
        }

    def _why_not(self, rank: Rank, plan: Plan) -> str:
        worker = self._fleet.worker_of(rank)
        if worker.description is not None and worker.description.model != plan.route.model:
            return f"serves another model: {worker.description.model}"
        if why := refusal(worker):
            return why
        role = self._role(rank)
        if role == "both":
            return f"does not serve {plan.request.model}"
        return f"role {role}: {missing(plan.route)}"

    def _role(self, rank: Rank) -> Role:
        said = self._fleet.worker_of(rank).description
        return said.role if said is not None else "both"


def _named(rank: Rank | None) -> dict[str, Any] | None:
    return {"worker": rank.worker, "rank": rank.rank} if rank is not None else None
