"""Answers as the real engines give them: vLLM's from a capture, SGLang's after what 0.5.23 documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.engines.scripted import Answer

CAPTURE = Path(__file__).parents[1] / "fixtures" / "captures" / "vllm_0.32.0_http.jsonl"
PATHS = ("/version", "/v1/models", "/kv_event_sources", "/metrics", "/is_paused", "/is_sleeping")


def captured_vllm() -> dict[str, Answer]:
    """Return the first answer of a real vLLM 0.32 to each route that we ask."""
    routes: dict[str, Answer] = {}
    with CAPTURE.open(encoding="utf-8") as lines:
        for record in map(json.loads, lines):
            path, body = record["path"], record["response"]
            if record["worker"] == "vllm0" and path in PATHS and path not in routes:
                routes[path] = Answer(body.encode() if isinstance(body, str) else body, record["status"])
    return routes


def vllm(
    *ranks: dict[str, Any], cache: str = 'block_size="32",enable_prefix_caching="True"'
) -> dict[str, Answer]:
    """Return a vLLM worker whose ranks publish as `ranks` say."""
    standard = {"enable_kv_cache_events": True, "publisher": "zmq", "replay_endpoint": None, "topic": ""}
    sources = {str(rank): standard | config for rank, config in enumerate(ranks)}
    lines = [f'vllm:cache_config_info{{engine="{rank}",{cache}}} 1.0' for rank in range(max(1, len(ranks)))]
    return {
        "/version": Answer({"version": "0.32.0"}),
        "/v1/models": models("tiny", root="/models/tiny"),
        "/kv_event_sources": Answer(sources),
        "/metrics": Answer("\n".join(["process_start_time_seconds 1.79e+09", *lines]).encode()),
    }


def sglang(events: Any = "standard", **info: Any) -> dict[str, Answer]:
    """Return an SGLang worker with `events` as its kv_events and `info` over its server_info."""
    publisher = {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": 5557,
        "topic": "kv",
        "block_size": 64,
        "dp_size": 1,
    }
    if events == "standard":
        events = publisher
    elif isinstance(events, dict):
        events = publisher | events
    server_info = {
        "model_path": "/models/qwen",
        "tokenizer_path": "/models/qwen",
        "served_model_name": "qwen",
        "page_size": 16,
        "dp_size": 1,
        "speculative_algorithm": None,
        "disaggregation_mode": "null",
        "disaggregation_bootstrap_port": 8998,
        "startup_time": 21.5,
        "status": "ready",
        "version": "0.5.23",
        "kv_events": events,
    }
    return {"/server_info": Answer(server_info | info), "/v1/models": models("qwen", root="/models/qwen")}


def models(*names: str, root: str | None = None, adapters: dict[str, str] | None = None) -> Answer:
    """Return an answer of /v1/models."""
    cards = [{"id": name, "object": "model", "root": root, "parent": None} for name in names]
    cards += [{"id": name, "object": "model", "parent": base} for name, base in (adapters or {}).items()]
    return Answer({"object": "list", "data": cards})
