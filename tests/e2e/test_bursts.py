"""Bursts over real sockets: a hot prefix spills by cost, and new siblings gather on few workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.core.weights import Weights
from tests.e2e.processes import both
from tests.e2e.test_routing import complete, settled

if TYPE_CHECKING:
    import httpx2

WORKERS = 4
PREFIX, TAIL = 2000, 48
HOT, SIBLINGS = 32, 16
WEIGHTS = Weights()


@dataclass(slots=True)
class Place:
    """A worker as kv sees it, in tokens and requests."""

    tokens: int = 0
    requests: int = 0
    uncached: int = PREFIX + TAIL

    @property
    def cost(self) -> float:
        return self.tokens + WEIGHTS.uncached * self.uncached + WEIGHTS.active * self.requests


def shares(requests: int, *, held: bool, computed: bool) -> list[int]:
    """Return how many requests each worker gets by kv's cost, one holding the prefix or none.

    `computed`: prompts are computed at once, and not before the last request has been sent.
    """
    places = [Place() for _ in range(WORKERS)]
    if held:
        places[0].uncached = TAIL
    for _ in range(requests):
        place = min(places, key=lambda place: place.cost)
        place.requests += 1
        place.tokens += 0 if computed else place.uncached
        place.uncached = TAIL
    return [place.requests for place in places]


def prompt(base: int, tail: int) -> list[int]:
    shared = [(base * 37 + at) % 240 + 1 for at in range(PREFIX)]
    return shared + [(tail * 11 + at) % 240 + 1 for at in range(TAIL)]


async def burst(client: httpx2.AsyncClient, base: int, count: int) -> tuple[Counter[str], int]:
    """Send requests with one prefix all at once; return who has served how many, and the cached tokens."""
    sent = [complete(client, prompt(base, tail), max_tokens=100) for tail in range(1, count + 1)]
    answers = await asyncio.gather(*sent)
    cached = sum(answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers)
    return Counter(answer.headers["x-kv-router-worker"] for answer in answers), cached


async def test_a_hot_prefix_spills_by_cost_and_cold_siblings_gather() -> None:
    async with both("--profile", "8b-h100", count=WORKERS) as (_, _, client):
        served, cached = await burst(client, 1, SIBLINGS)
        bounds = [shares(SIBLINGS, held=False, computed=computed) for computed in (False, True)]
        assert len(served) <= max(sum(share > 0 for share in bound) for bound in bounds)
        assert cached >= 0.8 * (SIBLINGS - 1) * PREFIX

        owner = (await complete(client, prompt(2, 0), max_tokens=1)).headers["x-kv-router-worker"]
        await settled(client, prompt(2, 0), owner, PREFIX + TAIL - 16)
        served, _ = await burst(client, 2, HOT)
        bounds = [shares(HOT, held=True, computed=computed) for computed in (False, True)]
        assert len(served) >= min(sum(share > 0 for share in bound) for bound in bounds)
        # The owner has the most, and no more than its cost allows; nobody else has more than that either.
        assert served[owner] <= max(bound[0] for bound in bounds) + 1
        assert max(served.values()) <= max(map(max, bounds)) + 1
