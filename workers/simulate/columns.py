"""The preset of `simulate --table`: which workloads are columns, and what befalls the routers in its rows.

Workloads that the weights of `kv` were chosen on stand beside others that they were not. The columns of a
trace are there when its path is given.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from workers.engine.hicache import TierConfig
from workers.simulate.recipe import Run
from workers.traces.mooncake import BLOCK_TOKENS
from workers.traces.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workers.simulate.setup import Setup

# What a column is called, and what its generator is asked for.
GENERATED = {
    "b2b 20/s": "groups,qps=20",
    "b2b 30/s": "groups,qps=30",
    "scarce": "groups,qps=14,groups=600,output=300",
    "decode": "groups,qps=20,groups=100,shared=1000,own=1000,output=2000",
    "chat": "chat,qps=30",
    "rollouts": "rollouts",
    "agents": "agents,qps=20",
    "hot key": "hot",
    "siblings": "siblings",
}
_HOST_TIER = 10.0
_REPLICAS, _RESTARTS, _LOSSES, _SHARE, _LAGS = 4, 5, 16, 0.02, (0.5, 5.0)


def columns(
    setup: Setup, trace: Source | None, *, seed: int, requests: int = 0
) -> list[tuple[str, Source, Setup]]:
    """Return every column: its name, its workload, and the fleet it is for."""
    made = [
        (name, Source(workload=text, seed=seed, requests=requests), setup) for name, text in GENERATED.items()
    ]
    return (_traced(setup, trace) if trace is not None else []) + made


def _traced(setup: Setup, trace: Source) -> list[tuple[str, Source, Setup]]:
    paged = replace(setup, page_size=BLOCK_TOKENS)
    tiered = replace(paged, tiers=setup.tiers or TierConfig(host=_HOST_TIER))
    return [
        ("trace x1.8", replace(trace, speed=1.8), paged),
        ("trace x2.6 +host", replace(trace, speed=2.6), tiered),
    ]


def by_policy(
    policies: Sequence[str], setup: Setup, trace: Source | None, *, seed: int, requests: int
) -> list[Run]:
    """Return a run of every policy on every column; the longest columns come first."""
    return [
        Run(name, source, column.under(policy))
        for name, source, column in columns(setup, trace, seed=seed, requests=requests)
        for policy in policies
    ]


def by_trouble(setup: Setup, trace: Source | None, *, seed: int, requests: int) -> list[Run]:
    """Return the runs of one policy where there are several routers, restarts, or caches that are lost."""
    wanted = {"trace x1.8", "b2b 20/s"}
    return [
        Run(name, source, variant)
        for name, source, column in columns(setup, trace, seed=seed, requests=requests)
        if name in wanted
        for variant in _troubles(column)
    ]


def _troubles(setup: Setup) -> Iterator[Setup]:
    for name, router in (("events", setup), ("guesses", replace(setup, hears=False))):
        yield replace(router, variant=name)
        yield replace(router, variant=f"{name}, {_REPLICAS} routers", replicas=_REPLICAS)
        shared = replace(router, replicas=_REPLICAS, share=_SHARE)
        yield replace(shared, variant=f"{name}, {_REPLICAS} routers that share load")
        yield replace(router, variant=f"{name}, {_RESTARTS} restarts of the router", restarts=_RESTARTS)
        yield replace(router, variant=f"{name}, {_LOSSES} caches lost", losses=_LOSSES)
    for lag in _LAGS:
        yield replace(setup, variant=f"events {lag:g} s late", lag=lag)
