"""What a request goes through: it is read, waits for room, is sent where least work remains, is told of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.api.admission import Admission
from router.api.completions import Completions
from router.api.dispatch import Dispatcher
from router.api.planner import Planner
from router.api.retries import Retries
from router.derived import capacity_of
from router.pairs.choice import Judge
from router.prompts.reader import PromptReader
from router.proxy.body import MOST_BYTES, BodyBudget

if TYPE_CHECKING:
    from router.derived import Rules
    from router.members import Members
    from router.observe.metrics import Metrics
    from router.startup import Startup


@dataclass(frozen=True, slots=True)
class Routing:
    """The parts, in the order in which a request meets them; `bodies` is the room that bodies have."""

    bodies: BodyBudget
    completions: Completions
    reader: PromptReader
    planner: Planner
    admission: Admission
    judge: Judge
    retries: Retries
    dispatcher: Dispatcher


def routing_of(startup: Startup, members: Members, rules: Rules, metrics: Metrics) -> Routing:
    """Return the parts, for the members of a fleet."""
    config, fleet, company = startup.config, members.fleet, members.company
    reader = PromptReader()
    forwards = config.forward_input_ids == "on"
    planner = Planner(fleet, reader, startup.tokenizers, metrics, forward_input_ids=forwards)
    admission = Admission(
        capacity_of(config, company.index),
        lambda rank: fleet.worker_of(rank).requests(),
        metrics.stages["wait"],
    )
    judge = Judge(fleet.index, rules.weights, startup.witness.random, config.pd_min_uncached)
    retries = Retries(metrics, most=config.retries, share=config.retry_share, floor=config.retry_floor)
    dispatcher = Dispatcher(
        fleet, planner, metrics, judge, company.accounts, retries=retries, admission=admission
    )
    bodies = BodyBudget(max(MOST_BYTES, config.max_body_bytes))
    completions = Completions(
        planner,
        dispatcher,
        admission,
        metrics,
        startup.front.wishes,
        max_body_bytes=config.max_body_bytes,
        bodies=bodies,
        limits=rules.limits,
        observers=startup.witness.observers(),
    )
    return Routing(bodies, completions, reader, planner, admission, judge, retries, dispatcher)
