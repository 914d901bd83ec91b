"""Workers: what they are, their state, their load and their failures."""

from __future__ import annotations

from router.observe.definition import WORKER, Definition, by_worker

WORKERS = (
    Definition(
        "gauge",
        "worker_info",
        "",
        (*WORKER, "engine", "model", "role"),
        "1, with what a worker is",
        lambda now: (((row.url, row.engine or "", row.model or "", row.role), 1) for row in now.workers),
        merge="max",
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
        "counter",
        "worker_refusals",
        "requests",
        WORKER,
        "Requests that a worker did not take, by its own word: 429 or 503",
        by_worker(lambda row: row.refusals),
    ),
    Definition(
        "gauge",
        "worker_loaded_seconds",
        "seconds",
        WORKER,
        "How long yet a worker is spared because it has said that it has too much to do",
        by_worker(lambda row: row.loaded_seconds),
        merge="max",
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
        "gauge",
        "tokens_mode",
        "",
        (*WORKER, "mode"),
        "1 for where the token ids of a worker's prompts come from: a library's name, worker (/tokenize), "
        "text (compared as text with what was routed lately), distrusted (its counts are others)",
        lambda now: (((row.url, row.tokens), 1) for row in now.workers if row.tokens),
        merge="max",
    ),
)
