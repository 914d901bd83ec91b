"""A router that has something of everything to show."""

from __future__ import annotations

from router.core.index import IndexSize
from router.observe.metrics import Metrics
from router.observe.rows import BreakerRow, EngineLoadRow, RankRow, ShareRow, WorkerRow

URL = "http://[::1]:30000"


def counts() -> Metrics:
    metrics = Metrics()
    metrics.answered("/v1/completions", 200, 0.2, "m")
    metrics.answered("/v1/completions", 404, 0.001)
    metrics.retries += 1
    metrics.token_checks["right"] = 2
    metrics.clients = lambda: {("batch", "limited"): 1}
    metrics.index = lambda: IndexSize(10, 1000, 1)
    metrics.serving = lambda: {"m": True, "gone": False}
    metrics.discovery = lambda: {"kubernetes": False}
    metrics.waiting = lambda: {"m": 3}
    metrics.queue_limit = lambda: 10
    metrics.share = lambda: ShareRow(channel="kv-router", connected=True, routers=1, sent=5, heard=4)
    metrics.errors["worker"] += 2
    metrics.decided(0.00001, 0.00001, 0.00002)
    metrics.chosen("m", "kv", 64, 100)
    of_model = metrics.of("m")
    of_model.first_token.observe(0.02)
    of_model.between["tokens"].observe(0.01)
    of_model.finished(64, 100, 48)
    return metrics


def rank(number: int = 0) -> RankRow:
    return RankRow(
        rank=number,
        view="live",
        blocks={"GPU": 7, "CPU_PINNED": 3},
        predicted_blocks=2,
        last_seq=41,
        event_age_seconds=0.25,
        event_lag_seconds=0.0,
        shortest_event_lag_seconds=-0.5,
        longest_event_lag_seconds=0.125,
        gaps=1,
        lost_gaps=1,
        replays=4,
        resets={"all_blocks_cleared": 5},
        batches=42,
        early_batches=2,
        events={"stored": 6, "removed": 8, "cleared": 5},
        orphans=9,
        undecodable=10,
        skipped={"group": 11},
        contradicted_blocks=12,
        prediction_trust=0.5,
        others_requests=2,
        others_tokens=700,
        engine=EngineLoadRow(
            running=4, waiting=1, waiting_tokens=700, kv_usage=0.25, by="socket", age_seconds=0.1
        ),
    )


def fleet() -> list[WorkerRow]:
    return [
        WorkerRow(
            url=URL,
            engine="sglang",
            model="m",
            state="ready",
            tokens="fastokens",
            breaker=BreakerRow(
                state="open",
                cause="failures",
                in_a_row=5,
                failures={"status": 5},
                changes={"open": {"failures": 2, "reset": 1}, "half_open": {"probe": 1}},
            ),
            refusals=12,
            loaded_seconds=0.5,
            inflight_requests=3,
            inflight_tokens=900,
            ranks=[rank(0), rank(1)],
        )
    ]
