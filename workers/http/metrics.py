"""Prometheus text, with the names that the two engines give to what a router may want to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.driver import Driver
    from workers.http.edge import Edge

_SLEEP_STATES = ("awake", "weights_offloaded", "discard_all")


def _line(name: str, labels: dict[str, object], value: float) -> str:
    text = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
    return f"{name}{{{text}}} {float(value)}" if text else f"{name} {float(value)}"


def _escaped(label: object) -> str:
    return str(label).replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def sglang_metrics(edge: Edge) -> str:
    """Return SGLang's /metrics, one series per rank."""
    lines = [line for driver in edge.drivers for line in _sglang_rank(edge, driver)]
    return "\n".join(lines) + "\n"


def _sglang_rank(edge: Edge, driver: Driver) -> Iterator[str]:
    rank, labels = driver.rank, {"model_name": edge.spec.model, "dp_rank": driver.number}
    counters = rank.counters
    values = {
        "num_running_reqs": len(rank.started()),
        "num_queue_reqs": len(rank.waiting),
        "token_usage": usage(driver),
        "cache_hit_rate": counters.cached_tokens / max(1, counters.prompt_tokens),
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generated_tokens,
        "cached_tokens_total": counters.cached_tokens,
        "num_requests_total": counters.finished,
        "num_retracted_requests_total": counters.retracted,
    }
    return (_line(f"sglang:{name}", labels, value) for name, value in values.items())


def vllm_metrics(edge: Edge) -> str:
    """Return vLLM's /metrics: the start of the process, then one series per rank.

    Several ranks have as many front ends, which share their metrics and have no start in common.
    """
    lines = [_line("process_start_time_seconds", {}, edge.started)] if len(edge.drivers) == 1 else []
    lines += [line for driver in edge.drivers for line in _vllm_rank(edge, driver)]
    return "\n".join(lines) + "\n"


def _vllm_rank(edge: Edge, driver: Driver) -> Iterator[str]:
    rank, counters = driver.rank, driver.rank.counters
    labels: dict[str, object] = {"engine": driver.number, "model_name": edge.spec.model}
    values = {
        "num_requests_running": len(rank.started()),
        "num_requests_waiting": len(rank.waiting),
        "kv_cache_usage_perc": usage(driver),
        "num_preemptions_total": counters.retracted,
        "prefix_cache_queries_total": counters.prompt_tokens,
        "prefix_cache_hits_total": counters.cached_tokens,
        "prompt_tokens_total": counters.prompt_tokens,
        "generation_tokens_total": counters.generated_tokens,
    }
    yield from (_line(f"vllm:{name}", labels, value) for name, value in values.items())
    state = _SLEEP_STATES[edge.sleep_level or 0]
    for name in _SLEEP_STATES:
        yield _line("vllm:engine_sleep_state", labels | {"sleep_state": name}, name == state)
    yield _line("vllm:cache_config_info", _cache_config(driver), 1)


def _cache_config(driver: Driver) -> dict[str, object]:
    capacity, page_size = driver.rank.memory.capacity, driver.rank.config.page_size
    return {
        "block_size": page_size,
        "enable_prefix_caching": True,
        "engine": driver.number,
        "kv_cache_size_tokens": capacity * page_size,
        "num_gpu_blocks": capacity,
        "prefix_caching_hash_algo": "sha256",
    }


def usage(driver: Driver) -> float:
    """Return the share of a rank's pages that running requests hold, 0 to 1."""
    return driver.rank.memory.held / driver.rank.memory.capacity
