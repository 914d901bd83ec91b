"""Every metric, in one table: the exposition and the README's reference are made from METRICS.

Names begin with `kv_router_` and end in their unit where they have one of Prometheus's. Labels have few
values: workers, ranks, and names that are the router's or the engines' own. Of a state only the present one
is there, with value 1. A `read` yields values by the values of the labels, in the labels' order.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from router import __version__
from router.observe.histogram import Histogram

if TYPE_CHECKING:
    from router.observe.metrics import Metrics
    from router.observe.rows import RankRow, WorkerRow

PREFIX = "kv_router_"
NONE: tuple[str, ...] = ()
WORKER = ("worker",)
RANK = ("worker", "rank")


class Scrape:
    """Everything there is to read at one moment; `ranks` are (worker, rank, row)."""

    __slots__ = ("counts", "ranks", "workers")

    def __init__(self, counts: Metrics, workers: Iterable[WorkerRow]) -> None:
        self.counts = counts
        self.workers = list(workers)
        self.ranks: list[tuple[str, str, RankRow]] = [
            (worker.url, str(row.rank), row) for worker in self.workers for row in worker.ranks
        ]


Merge = Literal["sum", "max", "min"]
Values = Iterable[tuple[tuple[str, ...], float | Histogram]]
Read = Callable[[Scrape], Values]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric. `name` is without the prefix and without `_total`.

    `merge`: what one scrape of several processes of a router says of values with the same labels. Counts of
    what each process does itself add up; of what each of them sees for itself (a state, a rank's view and
    its stream) the largest is shown.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    unit: str
    labels: tuple[str, ...]
    help: str
    read: Read
    merge: Merge = "sum"

    @property
    def full_name(self) -> str:
        """The name that a query uses."""
        return PREFIX + self.name + ("_total" if self.kind == "counter" else "")


def one(value: Callable[[Metrics], float | Histogram]) -> Read:
    """Read one value of the process."""
    return lambda now: [((), value(now.counts))]


def each(values: Callable[[Metrics], Iterable[tuple[str, float | Histogram]]]) -> Read:
    """Read the process's values by one label."""
    return lambda now: (((key,), value) for key, value in values(now.counts))


def by_worker(value: Callable[[WorkerRow], float]) -> Read:
    """Read a value of every worker."""
    return lambda now: (((row.url,), value(row)) for row in now.workers)


def by_rank(value: Callable[[RankRow], float | None]) -> Read:
    """Read a value of every rank that has one."""
    return lambda now: (
        ((worker, rank), number) for worker, rank, row in now.ranks if (number := value(row)) is not None
    )


def by_rank_and(values: Callable[[RankRow], Mapping[str, float]]) -> Read:
    """Read every rank's values by one more label."""
    return lambda now: (
        ((worker, rank, key), number)
        for worker, rank, row in now.ranks
        for key, number in values(row).items()
    )


METRICS = (
    Definition(
        "counter",
        "requests",
        "requests",
        ("route", "status_class"),
        "Requests answered, also those that failed",
        lambda now: now.counts.requests.items(),
    ),
    Definition(
        "counter",
        "retries",
        "requests",
        NONE,
        "Requests sent again to another worker before the first byte of an answer",
        one(lambda counts: counts.retries),
    ),
    Definition(
        "counter",
        "retries_refused",
        "requests",
        NONE,
        "Requests not sent again because there had been too many retries (--retry-share)",
        one(lambda counts: counts.retries_refused),
    ),
    Definition(
        "gauge",
        "waiting_requests",
        "requests",
        NONE,
        "Requests that wait for room at a worker (--max-inflight, --max-worker-inflight)",
        one(lambda counts: counts.waiting()),
    ),
    Definition(
        "histogram",
        "wait_seconds",
        "seconds",
        NONE,
        "How long those that had to wait have waited, of those that then went on",
        one(lambda counts: counts.waits),
    ),
    Definition(
        "counter",
        "turned_away",
        "requests",
        ("reason",),
        "Requests refused for want of room: full (as many wait as may), timeout (waited too long), ousted "
        "(one of higher priority has taken the place)",
        each(lambda counts: counts.turned_away.items()),
    ),
    Definition(
        "counter",
        "errors",
        "requests",
        ("fault",),
        "Requests that failed, by whose fault it was: client, worker, router, or capacity (no worker free)",
        each(lambda counts: counts.errors.items()),
    ),
    Definition(
        "counter",
        "client_requests",
        "requests",
        ("client", "outcome"),
        "Requests where clients need keys, by the name that stands behind the key: admitted, limited (over "
        "what the client may use), or refused (no valid key, and so no name)",
        lambda now: now.counts.clients().items(),
    ),
    Definition(
        "counter",
        "token_checks",
        "prompts",
        ("outcome",),
        "Prompts whose tokens were compared with the engine's own count or ids: right or wrong",
        each(lambda counts: counts.token_checks.items()),
    ),
    Definition(
        "histogram",
        "time_to_first_byte_seconds",
        "seconds",
        NONE,
        "From a request's arrival to the first byte of its answer's body",
        one(lambda counts: counts.first_byte),
    ),
    Definition(
        "histogram",
        "request_seconds",
        "seconds",
        NONE,
        "From a request's arrival to the end of its answer",
        one(lambda counts: counts.request),
    ),
    Definition(
        "histogram",
        "stage_seconds",
        "seconds",
        ("stage",),
        "What the router itself adds: parse, tokenize, choose (block keys, match and cost)",
        each(lambda counts: counts.stages.items()),
    ),
    Definition(
        "counter",
        "decisions",
        "requests",
        ("policy", "reason"),
        "Choices of a worker, by policy and by what decided",
        lambda now: now.counts.decisions.items(),
    ),
    Definition(
        "counter",
        "prompt_tokens",
        "tokens",
        NONE,
        "Tokens of the prompts sent to workers",
        one(lambda counts: counts.prompt_tokens),
    ),
    Definition(
        "counter",
        "overlap_tokens",
        "tokens",
        NONE,
        "Of them, expected to be cached by the worker they were sent to",
        one(lambda counts: counts.overlap_tokens),
    ),
    Definition(
        "counter",
        "cached_tokens",
        "tokens",
        NONE,
        "Of them, cached as the engine then reported, where it did",
        one(lambda counts: counts.cached_tokens),
    ),
    Definition(
        "histogram",
        "prediction_error_tokens",
        "tokens",
        NONE,
        "Cached tokens reported minus expected, per request; le 0 less le -1 are the exact ones",
        one(lambda counts: counts.prediction_error),
    ),
    Definition(
        "gauge",
        "inflight_requests",
        "requests",
        WORKER,
        "Requests sent and not yet ended",
        by_worker(lambda row: row.inflight_requests),
    ),
    Definition(
        "gauge",
        "inflight_tokens",
        "tokens",
        WORKER,
        "Uncached prompt tokens sent and not yet answered with a first token",
        by_worker(lambda row: row.inflight_tokens),
    ),
    Definition(
        "gauge",
        "worker_state",
        "",
        (*WORKER, "state"),
        "1 for the state a worker is in: starting, ready, paused, draining, failed",
        lambda now: (((row.url, row.state), 1) for row in now.workers),
        merge="max",
    ),
    Definition(
        "gauge",
        "breaker_state",
        "",
        (*WORKER, "state"),
        "1 for the state a worker's breaker is in: closed, open, half_open",
        lambda now: (((row.url, row.breaker.state), 1) for row in now.workers),
        merge="max",
    ),
    Definition(
        "counter",
        "breaker_changes",
        "changes",
        (*WORKER, "state", "cause"),
        "Times a breaker entered a state, by cause: failures, share, outlier, trial, probe, or how contact "
        "was lost: connect, reset, cut",
        lambda now: (
            ((row.url, state, cause), count)
            for row in now.workers
            for state, causes in row.breaker.changes.items()
            for cause, count in causes.items()
        ),
    ),
    Definition(
        "counter",
        "worker_failures",
        "requests",
        (*WORKER, "kind"),
        "Requests that failed at a worker: no connection (connect), lost before (reset) or after (cut) the "
        "answer had begun, timeout, status",
        lambda now: (
            ((row.url, kind), count) for row in now.workers for kind, count in row.breaker.failures.items()
        ),
    ),
    Definition(
        "counter",
        "worker_refusals",
        "requests",
        WORKER,
        "Requests that a worker did not take, by its own word: 429 or 503",
        by_worker(lambda row: row.refusals),
    ),
    Definition(
        "gauge",
        "tokens_mode",
        "",
        (*WORKER, "mode"),
        "1 for where the token ids of a worker's prompts come from: a library's name, worker (/tokenize), "
        "text (compared as text with what was routed lately), distrusted (its counts are others)",
        lambda now: (((row.url, row.tokens), 1) for row in now.workers if row.tokens),
        merge="max",
    ),
    Definition(
        "gauge",
        "view_state",
        "",
        (*RANK, "state"),
        "1 for the state a rank's view is in: connecting, replaying, live, degraded, silent",
        by_rank_and(lambda row: {row.view: 1}),
        merge="max",
    ),
    Definition(
        "gauge",
        "blocks",
        "blocks",
        (*RANK, "tier"),
        "Blocks a rank holds, by its own events",
        by_rank_and(lambda row: row.blocks),
        merge="max",
    ),
    Definition(
        "gauge",
        "index_blocks",
        "blocks",
        NONE,
        "Distinct blocks kept in mind, over all workers",
        one(lambda counts: counts.index().blocks),
        merge="max",
    ),
    Definition(
        "gauge",
        "index_bytes",
        "bytes",
        NONE,
        "Memory that they take",
        one(lambda counts: counts.index().bytes),
    ),
    Definition(
        "counter",
        "index_evicted_blocks",
        "blocks",
        NONE,
        "Blocks forgotten because there were more than --index-max-blocks",
        one(lambda counts: counts.index().evicted),
        merge="max",
    ),
    Definition(
        "gauge",
        "predicted_blocks",
        "blocks",
        RANK,
        "Blocks of prompts just routed that no event has confirmed yet",
        by_rank(lambda row: row.predicted_blocks),
        merge="max",
    ),
    Definition(
        "gauge",
        "event_age_seconds",
        "seconds",
        RANK,
        "How old the last batch applied is, by the engine's clock",
        by_rank(lambda row: row.event_age_seconds),
        merge="max",
    ),
    Definition(
        "counter",
        "event_batches",
        "batches",
        RANK,
        "Batches of events applied",
        by_rank(lambda row: row.batches),
        merge="max",
    ),
    Definition(
        "counter",
        "events",
        "events",
        (*RANK, "kind"),
        "Events in them: stored, removed, cleared",
        by_rank_and(lambda row: row.events),
        merge="max",
    ),
    Definition(
        "counter",
        "gaps",
        "gaps",
        RANK,
        "Places where batches were missing from a stream",
        by_rank(lambda row: row.gaps),
        merge="max",
    ),
    Definition(
        "counter",
        "replays",
        "replays",
        RANK,
        "Times the engine was asked for batches again",
        by_rank(lambda row: row.replays),
        merge="max",
    ),
    Definition(
        "counter",
        "resets",
        "resets",
        (*RANK, "cause"),
        "Times a view was emptied",
        by_rank_and(lambda row: row.resets),
        merge="max",
    ),
    Definition(
        "gauge",
        "orphan_blocks",
        "blocks",
        RANK,
        "Blocks kept apart until the parent they were stored under is known",
        by_rank(lambda row: row.orphans),
        merge="max",
    ),
    Definition(
        "counter",
        "undecodable",
        "events",
        RANK,
        "Events that could not be understood",
        by_rank(lambda row: row.undecodable),
        merge="max",
    ),
    Definition(
        "counter",
        "skipped",
        "events",
        (*RANK, "reason"),
        "Events understood and of no use to the view",
        by_rank_and(lambda row: row.skipped),
        merge="max",
    ),
    Definition(
        "gauge",
        "processes",
        "processes",
        NONE,
        "Processes of the router that answer (--processes)",
        lambda _: [((), 1)],
    ),
    Definition(
        "counter",
        "process_restarts",
        "processes",
        NONE,
        "Processes that have ended before the router was to stop",
        lambda _: [((), 0)],
    ),
    Definition(
        "counter",
        "process_silences",
        "answers",
        NONE,
        "Times a process did not show itself within 1 s; its counters are then those it has told last",
        lambda _: [((), 0)],
    ),
    Definition(
        "gauge",
        "build_info",
        "",
        ("version", "python"),
        "1, with the versions that run",
        lambda _: [((__version__, platform.python_version()), 1)],
        merge="max",
    ),
)


def metric_table() -> str:
    """Return the reference of metrics as a Markdown table, for the README."""
    rows = [("Metric", "Kind", "Unit", "Labels", "Meaning"), ("---",) * 5]
    rows += [
        (f"`{metric.full_name}`", metric.kind, metric.unit, ", ".join(metric.labels), metric.help)
        for metric in METRICS
    ]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)
