"""Which runs are wanted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers.simulate.setup import Setup
    from workers.traces.source import Source


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation. `column` is what its workload is called in tables."""

    column: str
    source: Source
    setup: Setup
