"""Whether a live fleet agrees with the simulator: mean TTFT of several policies on two workloads.

Stand-ins, router and load are processes of their own and the same as a user starts. The profile is that of a
very slow machine, so that the CPU of this one is not the limit: requests wait for the steps of the engines.
The workloads keep the workers so busy that policies differ, and not so busy that the means of policies depend
on who comes a tenth of a second sooner.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvloop

from tests.e2e.processes import both
from workers.engine.timing import PROFILES
from workers.load.process import Target, load
from workers.load.result import Live
from workers.simulate.run import simulate
from workers.simulate.setup import Setup
from workers.traces.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKERS, KV_TOKENS, PROFILE = 4, 20_000, "slow"
WORKLOADS = (
    "groups,qps=0.55,seconds=75,groups=8,questions=4,shared=500,own=100,output=10",
    "chat,qps=0.9,seconds=75,turns=4,assistants=4,system=400,question=100,output=8,think=10",
)
COMPARED = ("kv", "lmetric", "round_robin")
BAR = 0.15


@dataclass(frozen=True, slots=True)
class Pair:
    """Mean TTFT in seconds under one policy; `late`: how late requests were sent, p99, seconds."""

    policy: str
    simulated: float
    live: float
    late: float

    @property
    def off(self) -> float:
        """How far the live one is from the simulated one, as a share of that."""
        return self.live / self.simulated - 1


def main() -> None:
    """Print the table."""
    print(f"{'mean TTFT, s':<24} {'simulated':>10} {'live':>10} {'off by':>8} {'sent late p99':>14}")
    for text in WORKLOADS:
        pairs = [_pair(text, policy) for policy in COMPARED]
        print(text)
        for pair in pairs:
            row = f"  {pair.policy:<22} {pair.simulated:>10.3f} {pair.live:>10.3f} {pair.off:>+8.1%}"
            print(f"{row} {pair.late * 1e3:>11.0f} ms", flush=True)
        worst = max(abs(pair.off) for pair in pairs)
        print(f"  order: {_order(pairs)}; farthest off {worst:.1%} (bar {BAR:.0%})")


def _order(pairs: Sequence[Pair]) -> str:
    simulated = sorted(pairs, key=lambda pair: pair.simulated)
    return "the same" if simulated == sorted(pairs, key=lambda pair: pair.live) else "another one"


def _pair(text: str, policy: str) -> Pair:
    source = Source(workload=text, seed=1)
    setup = Setup(policy=policy, workers=WORKERS, kv_tokens=KV_TOKENS, profile=PROFILES[PROFILE])
    simulated = simulate(source.load(), setup)
    live = uvloop.run(_live(source, policy))
    if live.result.unended:
        raise RuntimeError(f"{live.result.unended} requests failed: {live.errors}")
    return Pair(policy, simulated.ttft.mean, live.result.ttft.mean, live.late.p99)


async def _live(source: Source, policy: str) -> Live:
    fleet = ("--profile", PROFILE, "--capacity-tokens", str(KV_TOKENS), "--page-size", str(Setup().page_size))
    async with both(*fleet, count=WORKERS, router_options=("--policy", policy)) as (_, front, _client):
        target = Target(front.url, "stand-in")
        outcomes = await asyncio.to_thread(lambda: list(load(source, target, 1)))
    return Live.of(outcomes, url=front.url, workload="", name=policy)
