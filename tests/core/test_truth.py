"""What stand-ins of both engines really hold against what the router thinks, after hours of random traffic.

KV_ROUTER_LONG=1 runs a hundred times as many.
"""

from __future__ import annotations

import os
from random import Random

import pytest

from router.core.steps import State
from tests.core.engine import CONFIGS, Followed, Network, Prompt
from workers.engine import control

LONG = bool(os.environ.get("KV_ROUTER_LONG"))
SEEDS = range(100 if LONG else 1)
pytestmark = pytest.mark.timeout(7200 if LONG else 120)
GOOD, BAD = Network(), Network(0.05, 0.05, 0.05, 0.2)


def live_through(engine: Followed, steps: int) -> list[Prompt]:
    """Let anything happen to an engine; return the prompts it was asked."""
    rng = engine.rng
    asked: list[Prompt] = []
    for _ in range(steps):
        engine.wait(rng.choice([0.0, 0.01, 0.1, 5.0]))
        draw = rng.random()
        if draw < 0.9:
            asked.append(engine.prompt())
            engine.ask(*asked[-1], output=rng.randrange(1, 12))
        elif draw < 0.95:
            engine.sync(rng.choice(["retract", "in_place", "retract"]))
        elif draw < 0.98:
            engine.post(lambda _now: control.flush(engine.worker.rank))
        elif draw < 0.99:
            engine.restart()
        else:
            engine.wait(30.0)
            engine.heal()
    return asked


def check(engine: Followed, asked: list[Prompt], *, exact: bool) -> None:
    for prompt in asked:
        claimed, real = engine.held(*prompt)
        assert claimed == real if exact else claimed <= real, (prompt, claimed, real)
    if exact:
        claimed_counts, real_counts = engine.counts()
        assert claimed_counts == real_counts


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("history", [None, 40, 100_000], ids=["none", "short", "whole"])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("network", [GOOD, BAD], ids=["good", "bad"])
def test_a_view_is_what_its_engine_holds_or_says_that_it_is_not(
    name: str, history: int | None, network: Network, seed: int
) -> None:
    engine = Followed(name, Random(f"{name} {history} {network.lose} {seed}"), network, history=history)
    asked: list[Prompt] = []
    for _ in range(6 if LONG else 2):
        asked += live_through(engine, 40)
        engine.settle()
        engine.heal()
        if engine.cursor.state is State.DEGRADED:
            assert history != 100_000
            engine.flush()
        assert engine.cursor.state is State.LIVE
        check(engine, asked, exact=not engine.cursor.why)
