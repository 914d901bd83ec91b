"""The panels of the dashboard, row by row: which metric, split by what; queries follow from the metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Drawing = Literal["timeseries", "stat", "table", "heatmap", "alertlist"]


@dataclass(frozen=True)
class Panel:
    """One panel: `metrics` as they are in the table, without prefix, or else a PromQL `expression`.

    `by`: labels that make lines of their own. `where`: further matchers. `how` gauges are put together.
    `unit` is Grafana's, where it is not the metric's.
    """

    title: str
    metrics: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    expression: str = ""
    where: str = ""
    how: str = "sum"
    unit: str = ""
    drawing: Drawing = "timeseries"
    width: int = 8
    note: str = ""


MODEL, WORKER, RANK = ("model",), ("worker",), ("worker", "rank")

OVERVIEW = (
    Panel("Requests", ("requests",), drawing="stat", width=4),
    Panel(
        "Failing, not by clients",
        expression="max(instance:kv_router_errors:ratio5m{{{at}}})",
        unit="percentunit",
        drawing="stat",
        width=4,
        note="Requests that failed by a worker's fault, the router's, or for want of a worker.",
    ),
    Panel("Models served", ("model_ready",), how="sum", drawing="stat", width=4),
    Panel("Workers by state", ("worker_state",), ("state",), how="count", drawing="stat", width=4),
    Panel(
        "Prompt tokens cached",
        expression="avg(instance_model:kv_router_hit:ratio5m{{{at}}})",
        unit="percentunit",
        drawing="stat",
        width=4,
        note="Of the prompts whose engine has said so.",
    ),
    Panel("Alerts", drawing="alertlist", width=4),
)
TRAFFIC = (
    Panel("Requests by model and status", ("requests",), ("model", "status_class")),
    Panel("Requests by route", ("requests",), ("route",)),
    Panel("Errors by whose fault", ("errors",), ("fault",)),
    Panel("Tokens", ("prompt_tokens", "generated_tokens")),
    Panel("Decisions by reason", ("decisions",), ("policy", "reason")),
    Panel("Retries, and own policy failed", ("retries", "retries_refused", "policy_failures")),
    Panel("Waiting for room", ("waiting_requests",), MODEL),
    Panel("Limit of the queue", ("queue_limit_requests",), drawing="stat", width=4),
    Panel("Turned away", ("turned_away",), ("reason",), width=6),
    Panel("Clients", ("client_requests",), ("client", "outcome"), width=6),
)
LATENCY = (
    Panel("Time to first token", ("time_to_first_token_seconds",), MODEL),
    Panel("Between tokens", ("inter_token_seconds",), ("model", "counted")),
    Panel("Whole requests", ("request_seconds",), MODEL),
    Panel("Added by the router, by stage", ("stage_seconds",), ("stage",), width=12),
    Panel(
        "Added by the router, mean",
        expression="instance:kv_router_added_seconds:mean5m{{{at}}}",
        unit="s",
        width=12,
        note="Parse, tokenize, hash, match and choose of a request; waits and connections left out.",
    ),
)
CACHE = (
    Panel(
        "Cached share of prompts",
        expression="instance_model:kv_router_hit:ratio5m{{{at}}}",
        unit="percentunit",
        note="Tokens that engines report as cached, of the prompts of which they do.",
    ),
    Panel(
        "Cached, by what was expected",
        expression="instance_model:kv_router_prediction:ratio5m{{{at}}}",
        unit="percentunit",
        note="1 where the views are right; below, they claim too much.",
    ),
    Panel(
        "Answers over 64 tokens off",
        expression="instance_model:kv_router_misprediction:ratio5m{{{at}}}",
        unit="percentunit",
        note="Share of answers that report more than 64 cached tokens more or less than expected.",
    ),
    Panel("Error of the prediction", ("prediction_error_tokens",), drawing="heatmap", width=12),
    Panel(
        "Expected and reported",
        ("checked_prompt_tokens", "checked_overlap_tokens", "cached_tokens"),
        width=12,
    ),
    Panel("Expected to be cached, of all prompts", ("overlap_tokens",), MODEL),
    Panel("Saved", ("saved_tokens",), MODEL),
    Panel("Tokens compared with the engines'", ("token_checks",), ("outcome",)),
)
VIEWS = (
    Panel("Views by state", ("view_state",), ("state",), how="count"),
    Panel("Blocks by tier", ("blocks",), ("tier",)),
    Panel("Resets by cause", ("resets",), ("cause",)),
    Panel(
        "Lag of events, the worst ranks",
        ("event_lag_seconds", "longest_event_lag_seconds"),
        WORKER,
        how="max",
    ),
    Panel("Shortest lag: the clocks", ("shortest_event_lag_seconds",), WORKER, how="min"),
    Panel("Age of the last batch", ("event_age_seconds",), WORKER, how="max"),
    Panel("Batches", ("event_batches", "duplicate_batches", "early_batches")),
    Panel("Events by kind", ("events",), ("kind",)),
    Panel("Gaps and replays", ("gaps", "lost_gaps", "replays")),
    Panel("Not understood, not used", ("undecodable",), WORKER),
    Panel("Skipped by reason", ("skipped",), ("reason",)),
    Panel("Orphaned and predicted blocks", ("orphan_blocks", "predicted_blocks")),
    Panel("Claims that the engine denied", ("contradicted_blocks",), RANK, width=12),
    Panel("Predictions that come true", ("prediction_trust",), RANK, how="min", unit="percentunit", width=12),
)
LOADS = (
    Panel("Others' requests", ("others_requests",), RANK, how="min"),
    Panel("Others' prefill in flight", ("others_tokens",), RANK, how="min"),
    Panel("Requests in the engines' words", ("engine_requests",), ("worker", "state")),
    Panel("KV cache in use", ("engine_kv_usage",), RANK, how="max", unit="percentunit", width=12),
    Panel("Age of the engines' words", ("engine_load_age_seconds",), RANK, how="max", width=12),
)
FLEET = (
    Panel("Requests in flight", ("inflight_requests",), WORKER),
    Panel("Prefill in flight", ("inflight_tokens",), WORKER),
    Panel("Failures by kind", ("worker_failures",), ("worker", "kind")),
    Panel("Breakers not closed", ("breaker_state",), ("worker", "state"), where='state!="closed"'),
    Panel("Changes of breakers", ("breaker_changes",), ("worker", "state", "cause")),
    Panel("Refusals", ("worker_refusals",), WORKER),
    Panel("Spared for", ("worker_loaded_seconds",), WORKER, how="max"),
    Panel("Where token ids come from", ("tokens_mode",), ("mode",), how="count"),
    Panel("Workers not ready", ("worker_state",), ("worker", "state"), where='state!="ready"', how="max"),
    Panel("Workers", ("worker_info",), ("worker", "engine", "model", "role"), drawing="table", width=24),
)
ROUTER = (
    Panel("Delay of the event loop", ("loop_delay_seconds",)),
    Panel("CPU", ("cpu_seconds",), unit="percentunit"),
    Panel("Memory", ("resident_memory_bytes", "virtual_memory_bytes", "index_bytes", "held_bytes")),
    Panel("Blocks in the index", ("index_blocks",)),
    Panel("Records", ("record_state",), ("state",), how="max"),
    Panel("Records written", ("record_bytes",)),
    Panel("Spans that no collector took", ("spans_lost",)),
    Panel("Blocks forgotten for want of room", ("index_evicted_blocks",)),
    Panel("Open files", ("open_fds", "max_fds"), how="max"),
    Panel("Threads", ("threads",)),
    Panel(
        "Started",
        expression='max by (instance) (process_start_time_seconds{{job="kv-router",{at}}}) * 1000',
        drawing="stat",
        unit="dateTimeFromNow",
        note="The youngest process of each router.",
    ),
    Panel(
        "Processes, and those that have ended or gave no sign",
        ("processes", "process_restarts", "process_silences"),
    ),
    Panel("Sources of workers that cannot be read", ("discovery_failing",), ("source",), how="max"),
    Panel("Builds", ("build_info",), ("instance", "version", "python"), drawing="table"),
    Panel("Routers that share load", ("share_connected", "share_routers"), ("instance",)),
    Panel("Messages between routers", ("share_messages", "share_bytes"), ("outcome",)),
)
ROWS = {
    "Overview": OVERVIEW,
    "Traffic": TRAFFIC,
    "Latency": LATENCY,
    "Cache truth": CACHE,
    "Views": VIEWS,
    "Loads": LOADS,
    "Fleet": FLEET,
    "The router itself": ROUTER,
}
