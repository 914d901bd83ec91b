"""Ranks' loads beyond this process's own requests, and what is learnt of ranks."""

from __future__ import annotations

from router.observe.definition import RANK, Definition, by_rank, by_rank_and

LOADS = (
    Definition(
        "gauge",
        "others_requests",
        "requests",
        RANK,
        "Requests on a rank that are not this process's own, by its peers' word or the engine's",
        by_rank(lambda row: row.others_requests),
        merge="min",
    ),
    Definition(
        "gauge",
        "others_tokens",
        "tokens",
        RANK,
        "Uncached prompt tokens in flight on a rank that are not this process's own",
        by_rank(lambda row: row.others_tokens),
        merge="min",
    ),
    Definition(
        "gauge",
        "engine_requests",
        "requests",
        (*RANK, "state"),
        "Requests on a rank in the engine's own words, running or waiting; not there while it says nothing",
        by_rank_and(lambda row: row.engine_requests),
        merge="max",
    ),
    Definition(
        "gauge",
        "engine_kv_usage",
        "",
        RANK,
        "Share of a rank's KV cache in use in the engine's own words, 0 to 1",
        by_rank(lambda row: row.engine.kv_usage if row.engine else None),
        merge="max",
    ),
    Definition(
        "gauge",
        "engine_load_age_seconds",
        "seconds",
        RANK,
        "How old the engine's last word on its load is",
        by_rank(lambda row: row.engine.age_seconds if row.engine else None),
        merge="min",
    ),
    Definition(
        "gauge",
        "prediction_trust",
        "",
        RANK,
        "Share of predicted blocks that comes true, as answers have shown lately; predictions count by it",
        by_rank(lambda row: row.prediction_trust),
        merge="min",
    ),
)
