"""Who could take a request now, and which of them should."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from router.api.eligible import fitting, has_pinned, nobody, pinned
from router.core.cost import choose
from router.core.decide import gather, make_keys

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from router.api.admission import Admission
    from router.api.planner import Plan
    from router.core.facts import Candidate
    from router.core.rank import Rank
    from router.fleet.fleet import Fleet
    from router.observe.metrics import Metrics
    from router.observe.story import Story
    from router.pairs.choice import Judge

_NONE: frozenset[str] = frozenset()


class Chooser:
    """Looks at one fleet; `judge` has the weights and what is decided at random."""

    def __init__(self, fleet: Fleet, metrics: Metrics, judge: Judge, admission: Admission) -> None:
        self._fleet = fleet
        self._metrics = metrics
        self._weights = judge.weights
        self._rng = judge.rng
        self._admission = admission

    def look(self, plan: Plan) -> list[Rank]:
        """Return who could take a request that waits; raises NoWorker when there will be nobody."""
        ranks = self.eligible(plan, _NONE)
        if not ranks and not self._fleet.route(plan.request.model).paused:
            raise nobody(self._fleet, plan)
        return ranks

    def eligible(self, plan: Plan, tried: AbstractSet[str]) -> list[Rank]:
        """Return the ranks that can take the request now: a worker can have changed since it was planned."""
        fleet = self._fleet
        route = fleet.route(plan.request.model)
        ranks = fitting(fleet, plan, _without(route.ranks, tried))
        for spare in route.spare:
            if has_pinned(plan, ranks):
                break
            ranks = ranks + fitting(fleet, plan, _without(spare, tried))
        return pinned(plan, ranks)

    async def coming(self, plan: Plan) -> list[Rank]:
        """Return the ranks to choose from where there are none now: waits only while all are paused."""
        began = perf_counter()
        await self._fleet.wait_for(plan.request.model, self._admission.hold_seconds)
        self._metrics.stages["wait"].observe(perf_counter() - began)
        ranks = self.eligible(plan, _NONE)
        if not ranks:
            raise nobody(self._fleet, plan)
        return ranks

    def choose(self, plan: Plan, ranks: list[Rank], story: Story | None) -> Candidate:
        """Return the best of some ranks, as the request's policy has it."""
        began = perf_counter()
        make_keys(ranks, plan.prompt)
        hashed = perf_counter()
        facts = gather(self._fleet.index, ranks, plan.prompt, plan.wish.session)
        matched = perf_counter()
        policy = plan.wish.policy
        chosen = choose(policy, facts, self._weights, self._rng)
        metrics = self._metrics
        metrics.decided(hashed - began, matched - hashed, perf_counter() - matched)
        metrics.chosen(plan.route.model, policy.name, chosen.overlap_tokens, plan.prompt.count)
        if story is not None:
            story.chosen(policy, self._weights, facts, chosen, began)
        return chosen


def _without(ranks: list[Rank], tried: AbstractSet[str]) -> list[Rank]:
    return [rank for rank in ranks if rank.worker not in tried] if tried else ranks
