"""Bursts over real sockets: a hot prefix spills by cost, and new siblings gather on few workers."""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

from router.core.cost import POLICIES, Weights, choose
from router.core.decide import predict
from router.core.ledger import Ledger
from tests.core.board import Board
from tests.e2e.processes import both
from tests.e2e.test_routing import complete, settled

if TYPE_CHECKING:
    import httpx2

WORKERS = 4
PREFIX, TAIL = 2000, 48
HOT, SIBLINGS = 32, 16


def shares(requests: int, *, held: bool, computed: bool) -> list[int]:
    """Return how many requests each worker gets by kv, one holding the prefix or none.

    `computed`: prompts are computed at once, and not before the last request has been sent.
    """
    board, ledger = Board(PREFIX + TAIL), Ledger()
    for number in range(WORKERS):
        board.add(str(number), held=PREFIX if held and not number else 0)
    served: Counter[str] = Counter()
    for _ in range(requests):
        chosen = choose(POLICIES["kv"], board.facts(), Weights(), Random(0))
        predict(chosen, board.prompt, 0.0)
        ticket = ledger.open(chosen.rank.load, chosen.uncached_tokens)
        if computed:
            ticket.first_token()
        served[chosen.rank.worker] += 1
    return [served[str(number)] for number in range(WORKERS)]


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
