"""Where a workload comes from: small enough to be handed to another process, which makes it there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.traces import mooncake
from workers.traces.catalogue import generate

if TYPE_CHECKING:
    from pathlib import Path

    from workers.traces.workload import Workload


@dataclass(frozen=True, slots=True)
class Source:
    """Where a workload comes from: the file of a trace, or what a generator is asked for.

    `speed`: at which multiple of its speed; `requests`: only the first so many, 0 for all. `spread`: see
    `traces.mooncake`.
    """

    trace: Path | None = None
    workload: str = ""
    seed: int = 0
    speed: float = 1.0
    requests: int = 0
    spread: bool = True

    def load(self) -> Workload:
        """Return the workload; raises WorkloadError."""
        if self.trace is not None:
            whole = mooncake.read(self.trace, spread=self.spread)
        else:
            whole = generate(self.workload, seed=self.seed)
        return whole.first(self.requests).faster(self.speed)
