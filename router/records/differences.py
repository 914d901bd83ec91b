"""Where a re-run is not what was recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

MOST_DIFFERENCES = 1000


@dataclass(frozen=True, slots=True)
class Difference:
    """What was recorded, and what the re-run has in its place; `where` says of what."""

    where: str
    recorded: Any
    rerun: Any


@dataclass(slots=True)
class Differences:
    """`count` of them all, and the first ones; none where the record does not begin with its session."""

    whole: bool
    count: int = 0
    first: list[Difference] = field(default_factory=list)

    def compare(self, where: str, recorded: object, rerun: object) -> None:
        """Note a difference if there is one."""
        if recorded != rerun:
            self.differ(where, recorded, rerun)

    def differ(self, where: str, recorded: object, rerun: object) -> None:
        """Note a difference."""
        self.count += self.whole
        if self.whole and len(self.first) < MOST_DIFFERENCES:
            self.first.append(Difference(where, recorded, rerun))
