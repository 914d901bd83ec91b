"""What a load on something live has shown, and its table."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import msgspec

from workers.simulate.results import Result, Spread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.load.client import Outcome


class Live(msgspec.Struct):
    """One load. `late`: seconds that requests were sent after their times, by no fault of what was asked.

    `errors`: requests that failed, by what went wrong; `workers`: requests by who answered, where told.
    """

    url: str
    result: Result
    late: Spread
    errors: dict[str, int]
    workers: dict[str, int]

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], *, url: str, workload: str, name: str) -> Live:
        """Return what the outcomes of all requests say."""
        names = sorted({outcome.worker for outcome in outcomes})
        for outcome in outcomes:
            outcome.record.worker = names.index(outcome.worker)
        return cls(
            url,
            Result.of(
                [outcome.record for outcome in outcomes],
                [],
                workload=workload,
                policy=name,
                workers=len(names),
            ),
            Spread.of([outcome.late for outcome in outcomes]),
            dict(Counter(outcome.error for outcome in outcomes if outcome.error)),
            dict(Counter(outcome.worker for outcome in outcomes if outcome.worker)),
        )


def notes(live: Live, wanted: int) -> list[str]:
    """Return what a reader of the numbers should know, a line each; `wanted`: requests of the workload."""
    said = []
    if live.result.requests < wanted:
        said.append(f"interrupted: {live.result.requests} of {wanted} requests had ended")
    said += [f"{count} requests failed: {error}" for error, count in live.errors.items()]
    said.append(f"requests were sent {live.late.p99 * 1e3:.1f} ms late or less (p99)")
    return said
