"""The rows of several processes as one fleet: the same answer, whichever of them is asked.

What processes do themselves adds up: load, failures, refusals. What each of them sees for itself is shown as
the worst of them sees it: a worker is ready, and a rank's view live, once they are so in every process. A
worker is paused, too, once it is so in every process, and draining until then. A view holds what it holds in
any process; others have at a rank what they have in the eyes of the process that has most there itself; the
rest of a row is that of the process that sees it worst.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from router.core.breaker import BreakerState
from router.core.steps import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.observe.rows import BreakerRow, RankRow, WorkerRow

# From worst to best; the names of workers' states are those of `fleet.worker`.
_STATES = ("failed", "draining", "paused", "starting", "ready")
_VIEWS = (State.DEGRADED, State.SILENT, State.CONNECTING, State.REPLAYING, State.LIVE)
_BREAKERS = (BreakerState.OPEN, BreakerState.HALF_OPEN, BreakerState.CLOSED)
_SUMS = (
    *("inflight_requests", "inflight_tokens", "refusals"),
    *("answered", "prompt_tokens", "cached_tokens"),
)


def merged_rows(processes: Sequence[Sequence[WorkerRow]]) -> list[WorkerRow]:
    """Return a row for each worker that any of the processes has, those of the first one first."""
    found: dict[str, list[WorkerRow]] = {}
    for rows in processes:
        for row in rows:
            found.setdefault(row.url, []).append(row)
    return [_worker(rows) if len(rows) > 1 else rows[0] for rows in found.values()]


def _worker(rows: Sequence[WorkerRow]) -> WorkerRow:
    worst = min(rows, key=lambda row: (_place(_STATES, row.state), row.why))
    if {row.state for row in rows} == {"ready", "paused"}:
        # Whoever waits for either must wait until it holds everywhere.
        worst = replace(worst, state="draining", why="some processes see it paused, and some ready")
    sums = {name: sum(getattr(row, name) for row in rows) for name in _SUMS}
    return replace(
        worst,
        **sums,
        breaker=_breaker([row.breaker for row in rows]),
        loaded_seconds=max(row.loaded_seconds for row in rows),
        peers_requests=max(row.peers_requests for row in rows),
        peers_tokens=max(row.peers_tokens for row in rows),
        ranks=_ranks(rows),
    )


def _breaker(rows: Sequence[BreakerRow]) -> BreakerRow:
    worst = min(rows, key=lambda row: (_place(_BREAKERS, row.state), row.cause))
    changes: dict[str, Counter[str]] = {}
    for row in rows:
        for state, causes in row.changes.items():
            changes.setdefault(state, Counter()).update(causes)
    return replace(
        worst,
        in_a_row=max(row.in_a_row for row in rows),
        failures=_added(row.failures for row in rows),
        changes={state: dict(causes) for state, causes in changes.items()},
    )


def _ranks(rows: Sequence[WorkerRow]) -> list[RankRow]:
    """Return the ranks of one worker; where processes do not agree on how many, those of the most."""
    longest = max((row.ranks for row in rows), key=len)
    return [_rank([row.ranks[at] for row in rows if at < len(row.ranks)]) for at in range(len(longest))]


def _rank(rows: Sequence[RankRow]) -> RankRow:
    worst = min(rows, key=lambda row: (_place(_VIEWS, row.view), -(row.event_age_seconds or 0.0), row.why))
    tiers = {tier for row in rows for tier in row.blocks}
    words = [row.engine for row in rows if row.engine is not None]
    return replace(
        worst,
        blocks={tier: max(row.blocks.get(tier, 0) for row in rows) for tier in sorted(tiers)},
        predicted_blocks=max(row.predicted_blocks for row in rows),
        prediction_trust=min(row.prediction_trust for row in rows),
        others_requests=min(row.others_requests for row in rows),
        others_tokens=min(row.others_tokens for row in rows),
        engine=min(words, key=lambda word: word.age_seconds, default=None),
    )


def _added(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(each)
    return dict(total)


def _place(order: Sequence[str], name: Any) -> int:
    return order.index(name) if name in order else len(order)
