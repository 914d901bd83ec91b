"""The fleet at one moment, as rows for /workers and /metrics."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from router.core.steps import State
from router.observe.rows import BreakerRow, EngineLoadRow, RankRow, WorkerRow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from router.core.lag import Lag
    from router.core.rank import Rank
    from router.core.word import Word
    from router.fleet.health import Health
    from router.fleet.worker import Worker
    from router.streams.stream import Stream

    Mode = Callable[[str, str], tuple[str, str]]

_SILENT = "silent"
_UNHEARD = frozenset({State.CONNECTING, State.SILENT})
_CAUSES = "is its endpoint right and bound (with * in it), is the topic right, is prefix caching on?"
_SKIPPED = "skipped_"
_KINDS = ("stored", "removed", "cleared")


def snapshot(workers: Iterable[Worker], mode: Mode | None = None) -> list[WorkerRow]:
    """Return a row for each worker, with one for each of its ranks. About 20 us a rank.

    `mode` tells of a model and an engine where token ids come from, and why from there.
    """
    return list(each_row(workers, mode))


def each_row(workers: Iterable[Worker], mode: Mode | None = None) -> Iterator[WorkerRow]:
    """Yield the rows one by one, each of the moment when it is asked for; workers may come and go."""
    return (_worker_row(worker, time.time(), mode) for worker in list(workers))


def _worker_row(worker: Worker, now: float, mode: Mode | None) -> WorkerRow:
    said = worker.description
    tokens, tokens_why = mode(said.model, said.engine) if said and mode else (None, "")
    pairs = zip(worker.ranks, worker.streams, strict=True)
    state, why = worker.shown()
    return WorkerRow(
        url=worker.url,
        engine=said.engine if said else worker.spec.engine,
        model=said.model if said else None,
        role=said.role if said else worker.spec.role,
        state=state,
        why=why,
        breaker=_breaker_row(worker.health),
        refusals=worker.health.refusals,
        loaded_seconds=round(worker.health.loaded_seconds(), 3),
        tokens=tokens,
        tokens_why=tokens_why,
        inflight_requests=worker.requests(),
        inflight_tokens=sum([load.own_tokens for load in worker.loads]),
        answered=sum([rank.answered for rank in worker.ranks]),
        prompt_tokens=sum([rank.prompt_tokens for rank in worker.ranks]),
        cached_tokens=sum([rank.cached_tokens for rank in worker.ranks]),
        ranks=[_rank_row(worker, rank, stream, now) for rank, stream in pairs],
    )


def _breaker_row(health: Health) -> BreakerRow:
    breaker = health.breaker
    changes: dict[str, dict[str, int]] = {}
    for (state, cause), count in breaker.changes.items():
        changes.setdefault(state, {})[cause] = count
    return BreakerRow(
        state=breaker.state,
        cause=breaker.cause,
        in_a_row=breaker.row,
        failures=dict(breaker.failures),
        changes=changes,
    )


def _rank_row(worker: Worker, rank: Rank, stream: Stream | None, now: float) -> RankRow:
    view = rank.view
    row = RankRow(
        rank=rank.rank,
        view=_SILENT,
        blocks=view.blocks(),
        predicted_blocks=len(view.predicted),
        resets=dict(view.resets),
        events={kind: view.events[kind] for kind in _KINDS},
        orphans=view.orphans.blocks,
        undecodable=view.events["undecodable"],
        contradicted_blocks=view.events["contradicted"],
        skipped={
            name.removeprefix(_SKIPPED): count
            for name, count in view.events.items()
            if name.startswith(_SKIPPED)
        },
        prediction_trust=round(view.predicted.trust, 3),
        others_requests=rank.load.others_requests,
        others_tokens=rank.load.others_tokens,
        engine=_engine_row(rank.said),
    )
    if stream is None:
        row.why = _why_silent(worker)
    else:
        _add_stream(row, worker, stream, now)
    return row


def _engine_row(said: Word | None) -> EngineLoadRow | None:
    if said is None:
        return None
    load = said.load
    return EngineLoadRow(
        running=load.running,
        waiting=load.waiting,
        waiting_tokens=load.waiting_tokens,
        kv_usage=round(load.usage, 4),
        by=said.by,
        age_seconds=round(max(0.0, time.monotonic() - said.at), 3),
    )


def _why_silent(worker: Worker) -> str:
    why = worker.description.why_no_events if worker.description else ""
    return f"no KV events, predicted entries only: {why}" if why else "no KV events, predicted entries only"


def _add_stream(row: RankRow, worker: Worker, stream: Stream, now: float) -> None:
    cursor = stream.cursor
    state, why, hint, last_seq = cursor.state, cursor.why, stream.hint, cursor.last_seq
    if last_seq is None or state in _UNHEARD:
        said = worker.description.why_no_events if worker.description else ""
        hint = hint or said or (_CAUSES if state is State.SILENT else "")
        why = why or "no batch has come yet"
    row.view, row.why, row.last_seq = state, f"{why}; {hint}" if why and hint else why or hint, last_seq
    if last_seq is not None:
        row.event_age_seconds = round(max(0.0, now - stream.last_ts), 3)
    counts = stream.counts
    row.gaps, row.lost_gaps, row.replays = counts.gaps, counts.lost, counts.replays
    row.batches, row.duplicates = counts.batches, counts.duplicates
    row.undecodable += counts.undecodable
    _add_lag(row, counts.lag)


def _add_lag(row: RankRow, lag: Lag) -> None:
    row.early_batches = lag.early
    last, shortest, longest = lag.last, lag.shortest, lag.longest
    if last is None or shortest is None or longest is None:
        return
    row.event_lag_seconds = round(last, 6) if last > 0 else 0.0
    row.shortest_event_lag_seconds = round(shortest, 6)
    row.longest_event_lag_seconds = round(longest, 6)
