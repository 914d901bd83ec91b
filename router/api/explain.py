"""POST /explain: what the router would do with a request, and why; nothing is sent, nothing is counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from router.api.eligible import copies_of, missing, options
from router.core.decide import gather, overlap_by_tier
from router.fleet.route import refusal
from router.pairs.choice import decode_policy
from router.prompts.request import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.api.planner import Plan, Planner
    from router.api.wishes import Wishes
    from router.core.cost import Policy
    from router.core.facts import Candidate
    from router.core.rank import Rank
    from router.core.terms import Terms
    from router.fleet.fleet import Fleet
    from router.fleet.spec import Role
    from router.pairs.choice import Judge, Options
    from router.proxy.headers import Field


class Explainer:
    """Explains decisions of one fleet."""

    def __init__(self, fleet: Fleet, planner: Planner, judge: Judge, wishes: Wishes) -> None:
        self._fleet = fleet
        self._planner = planner
        self._judge = judge
        self._wishes = wishes

    async def explain(self, body: bytes, headers: Iterable[Field]) -> dict[str, Any]:
        """Return the answer to /explain for a completions, chat or native body. Raises RouterError."""
        plan = await self._planner.plan(kind_of(body), body, self._wishes.of(headers))
        ranks = self._fleet.ranks()
        who = options(self._fleet, plan, copies_of(plan), list)
        choice = self._judge.choose(who, plan.prompt, plan.wish)
        chosen = choice.first.rank if choice else None
        return {
            "prompt_tokens": plan.prompt.count,
            "exact": plan.exact,
            "why": plan.why,
            "block_size": (chosen or ranks[0]).view.block_size if ranks else None,
            "policy": plan.wish.policy.name,
            "chosen": _named(chosen),
            "decode": _named(choice.decode.rank if choice and choice.decode else None),
            "candidates": self._rows(plan, ranks, who),
        }

    def _rows(self, plan: Plan, ranks: list[Rank], who: Options) -> list[dict[str, Any]]:
        facts = gather(self._fleet.index, ranks, plan.prompt, plan.wish.session)
        costs = self._costs(plan, ranks, who)
        taking = {id(rank) for rank in who.ranks()}
        rows = []
        for candidate in facts.candidates():
            rank = candidate.rank
            one = facts.match(rank)
            tiers = overlap_by_tier(one, rank, candidate.cached_tokens) if one else {"GPU": 0}
            row = self._row(candidate, tiers, plan, eligible=id(rank) in taking)
            row["cost"], row["terms"] = costs[id(rank)]
            rows.append(row)
        return rows

    def _costs(self, plan: Plan, ranks: list[Rank], who: Options) -> dict[int, tuple[float, Terms]]:
        """Return each rank's cost and its parts, among those that it competes with: some rules look at all.

        What cannot take the request is shown as if all could.
        """
        policy = plan.wish.policy
        decode = [rank for halves in who.pairs for rank in halves.decode]
        first = [*who.alone, *who.able, *(rank for halves in who.pairs for rank in halves.prefill)]
        costs = self._costed(plan, policy, ranks)
        costs.update(self._costed(plan, policy, first))
        costs.update(self._costed(plan, decode_policy(policy), decode))
        return costs

    def _costed(self, plan: Plan, policy: Policy, ranks: list[Rank]) -> dict[int, tuple[float, Terms]]:
        if not ranks:
            return {}
        weights = self._judge.weights
        facts = gather(self._fleet.index, ranks, plan.prompt, plan.wish.session)
        amounts = policy.costs(facts, weights)
        return {
            id(rank): (float(amounts[at]), policy.terms(facts, weights, at)) for at, rank in enumerate(ranks)
        }

    def _row(
        self, candidate: Candidate, tiers: dict[str, int], plan: Plan, *, eligible: bool
    ) -> dict[str, Any]:
        rank = candidate.rank
        load = rank.load
        return {
            "worker": rank.worker,
            "rank": rank.rank,
            "role": self._role(rank),
            "overlap_tokens": tiers,
            "predicted_tokens": candidate.predicted_tokens,
            "prediction_trust": round(rank.view.predicted.trust, 3),
            "uncached_tokens": candidate.uncached_tokens,
            "inflight_tokens": load.inflight_tokens,
            "active_requests": load.active_requests,
            "others_tokens": load.others_tokens,
            "others_requests": load.others_requests,
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
