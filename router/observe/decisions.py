"""The last decisions with what each candidate would have cost, noted only while somebody watches.

`room` is how many more may be noted until it is filled again, so that many requests cost no more than few.
"""

from __future__ import annotations

from heapq import nsmallest
from math import inf, isfinite
from time import time
from typing import TYPE_CHECKING

import msgspec

from router.observe.ring import Ring
from router.observe.story import Moment

if TYPE_CHECKING:
    from router.observe.story import Decision as Choice
    from router.observe.story import Story

MOST = 50
_SHOWN_CANDIDATES = 8
_SHOWN_ID_BYTES = 64
_NOTE = "decision"


class Offer(msgspec.Struct):
    """What one rank had to offer, in tokens, and its cost with what goes into it; None: never."""

    worker: str
    rank: int
    cached_tokens: int
    predicted_tokens: int
    uncached_tokens: int
    inflight_tokens: int
    active_requests: int
    cost: float | None
    terms: dict[str, float | str] = {}


class Decision(msgspec.Struct):
    """One request and where it went; `time` in seconds since the epoch.

    `candidates` are the cheapest of all `ranks`, the chosen one among them. `decode` is the rank that answers
    where that is another one.
    """

    time: float
    id: str
    model: str
    prompt_tokens: int
    policy: str
    worker: str
    rank: int
    ranks: int
    candidates: list[Offer]
    decode: str | None = None


class Decisions:
    """The last `MOST`; `observe` is an observer."""

    __slots__ = ("ring", "room")

    def __init__(self) -> None:
        self.ring: Ring[Decision] = Ring(MOST)
        self.room = 0

    def observe(self, moment: Moment, story: Story) -> None:
        """Note a choice as it is made, and its other half when it is sent to a pair."""
        if moment is Moment.CHOSEN:
            if self.room and _NOTE not in story.notes:
                plan = story.plan
                model, tokens = (plan.route.model, plan.prompt.count) if plan else ("", 0)
                story.notes[_NOTE] = self.note(story.exchange.id, model, tokens, story.decisions[-1])
        elif moment is Moment.SENT:
            noted = story.notes.pop(_NOTE, None)
            half = story.tries[-1].decode
            if noted is not None and half is not None:
                noted.decode = f"{half.rank.worker} rank {half.rank.rank}"

    def note(self, request: bytes, model: str, prompt_tokens: int, choice: Choice) -> Decision:
        """Note a choice for a request of this id. About 0.2 us a rank, and 30 us."""
        self.room -= 1
        chosen = choice.chosen.rank
        noted = Decision(
            time(),
            request[:_SHOWN_ID_BYTES].decode("latin-1"),
            model,
            prompt_tokens,
            choice.policy.name,
            chosen.worker,
            chosen.rank,
            len(choice.facts.ranks),
            _offers(choice),
        )
        self.ring.append(noted)
        return noted


def _offers(choice: Choice) -> list[Offer]:
    """Return what the chosen rank has to offer, and the cheapest of the others."""
    facts, chosen = choice.facts, choice.chosen.rank
    costs = choice.policy.costs(facts, choice.weights)
    own = [at for at, rank in enumerate(facts.ranks) if rank is chosen]
    others = (at for at, rank in enumerate(facts.ranks) if rank is not chosen)
    shown = own + nsmallest(_SHOWN_CANDIDATES - 1, others, key=costs.__getitem__)
    return [_offer(choice, at, float(costs[at])) for at in shown]


def _offer(choice: Choice, at: int, cost: float) -> Offer:
    one = choice.facts.candidate(at)
    rank, load = one.rank, one.rank.load
    terms = choice.policy.terms(choice.facts, choice.weights, at)
    return Offer(
        rank.worker,
        rank.rank,
        one.cached_tokens,
        one.predicted_tokens,
        one.uncached_tokens,
        load.inflight_tokens,
        load.active_requests,
        cost if isfinite(cost) else None,
        {name: "never" if term == inf else term for name, term in terms.items()},
    )
