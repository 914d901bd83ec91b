"""Whether a live fleet agrees with the simulator: mean TTFT of several policies on two workloads.

Stand-ins, router and load are processes of their own and the same as a user starts. The profile is that of a
slow machine, so that the CPU of this one is not the limit: what a request waits for are the engines' steps.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

import uvloop

from router.core.cost import POLICIES
from tests.e2e.processes import both
from workers.engine.timing import PROFILES
from workers.load.process import Target, load
from workers.load.result import Live
from workers.simulate.run import simulate
from workers.simulate.setup import Setup
from workers.traces.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence

WORKERS, KV_TOKENS, PROFILE = 4, 40_000, "70b-tp8"
WORKLOADS = (
    "groups,qps=3.5,seconds=40,groups=24,questions=4,shared=2000,own=400,output=40",
    "agents,qps=2.5,seconds=45,steps=8,kinds=5,tools=3000,result=500,output=30,pause=3",
)
COMPARED = ("kv", "lmetric", "least_requests", "round_robin")
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
        pairs = [_pair(text, policy) for policy in COMPARED if policy in POLICIES]
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
        outcomes = await asyncio.to_thread(load, source, target, 1, lambda _count: None)
    return Live.of(outcomes, url=front.url, workload="", name=policy)
