"""Small fleets and workloads, so that a simulation takes a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers.simulate.run import simulate
from workers.simulate.setup import Setup
from workers.traces.catalogue import generate

if TYPE_CHECKING:
    from workers.simulate.results import Result
    from workers.traces.workload import Workload


def workload(text: str = "groups,qps=6,seconds=20,groups=12,output=60", seed: int = 1) -> Workload:
    return generate(text, seed=seed)


def run(asked: Workload, **changes: Any) -> Result:
    settings: dict[str, Any] = {"workers": 3, "kv_tokens": 60_000} | changes
    return simulate(asked, Setup(**settings))
