"""The command-line options of a worker: texts, bounds and defaults. What they make: `assembly`."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workers.checks import BANDWIDTHS, COUNTS, EVENT_COUNTS, PAIR_SECONDS
from workers.engine.loops import LOOPS
from workers.engine.timing import PROFILES
from workers.faults import explained
from workers.givens import option
from workers.tiers import GIGABYTE

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_WORKERS = 4096
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells have it
_PORT = click.IntRange(*COUNTS["port"])
FAULT_HELP = "\n".join(
    ["\b", "Faults (--fault NAME=VALUE, or POST /_faults with a JSON object at run time) [default]:"]
    + [f"  {line}" for line in explained()]
)


class Number(click.FloatRange):
    """A number within bounds; `nan`, which no bound keeps out, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number (see click)."""
        number: float = super().convert(value, param, ctx)
        if isnan(number):
            self.fail(f"{number} is not a number", param, ctx)
        return number


_GBPS = Number(BANDWIDTHS[0] / GIGABYTE, BANDWIDTHS[1] / GIGABYTE)


def worker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that make a WorkerSpec."""
    for one in reversed(OPTIONS):
        command = one(command)
    return command


def given() -> frozenset[str]:
    """Return the options that are on the command line, by name."""
    context = click.get_current_context()
    line = click.core.ParameterSource.COMMANDLINE
    return frozenset(name for name in context.params if context.get_parameter_source(name) is line)


def _count(name: str, default: int, text: str) -> Any:
    """Return a whole-number option within the bounds of its setting."""
    return click.option(option(name), type=click.IntRange(*COUNTS[name]), default=default, help=text)


def _choice(name: str, choices: list[str], text: str) -> Any:
    """Return an option that is one of some texts, the first by default."""
    return click.option(name, type=click.Choice(choices), default=choices[0], help=text)


OPTIONS = [
    _choice("--engine", ["sglang", "vllm"], "HTTP and event dialect."),
    click.option("--host", default="127.0.0.1", help="Address to bind, for HTTP and events."),
    click.option("--port", type=_PORT, default=0, help="HTTP port; 0: any."),
    click.option("--model", default="stand-in", help="Served model name."),
    click.option(
        "--lora",
        "adapters",
        multiple=True,
        metavar="NAME",
        help="LoRA adapter to serve; repeatable, none by default.",
    ),
    _count("page_size", 16, "Tokens per block."),
    _count("capacity_tokens", 200_000, "Tokens of KV cache per rank."),
    _count("dp", 1, "Data-parallel ranks, each with its own cache and ports."),
    _count("max_model_len", 131_072, "Longest prompt and output together, tokens."),
    _count("chunk_tokens", 8192, "Most tokens of one prefill batch."),
    _count("max_running", 256, "Most requests decoded at once, per rank."),
    click.option("--bigram", is_flag=True, help="Cache token pairs, as EAGLE and MTP models do (SGLang)."),
    click.option(
        "--cache-report/--no-cache-report",
        default=True,
        help="Say how much of a prompt was cached (SGLang: --enable-cache-report; vLLM: "
        "--enable-prompt-tokens-details).",
    ),
    click.option("--events/--no-events", default=True, help="Publish KV events."),
    click.option(
        "--kv-port", type=_PORT, default=0, help="Event port of rank 0, rank r uses r more; 0: any."
    ),
    click.option(
        "--kv-connect",
        metavar="tcp://HOST:PORT",
        help="Connect rank 0's publisher there, rank r's r ports higher; by default publishers bind.",
    ),
    click.option("--replay-port", type=_PORT, default=0, help="Replay port of rank 0; 0: any."),
    click.option("--replay/--no-replay", default=True, help="Answer replay requests."),
    _choice(
        "--replay-framing",
        ["current", "legacy"],
        "Frames of a replay reply: current has the topic before the number, legacy (older engines) has none.",
    ),
    click.option("--topic", default="", show_default="empty", help="Event topic."),
    click.option(
        "--hwm",
        type=click.IntRange(*EVENT_COUNTS["hwm"]),
        default=100_000,
        help="High-water mark: batches queued per subscriber, what comes then is dropped.",
    ),
    click.option(
        "--buffer-steps",
        type=click.IntRange(*EVENT_COUNTS["buffer_steps"]),
        default=10_000,
        help="Batches kept for replay.",
    ),
    click.option(
        "--load-port",
        type=_PORT,
        help="Publish LoadStat here, rank r on r ports more (SGLang); 0: any; by default there is none.",
    ),
    _choice(
        "--hash-form",
        ["int", "bytes"],
        "Block hashes on the wire: 64-bit ints, or whole 32-byte digests (vLLM).",
    ),
    _choice(
        "--event-shape",
        ["map", "array"],
        "Events on the wire: maps with a type (current engines), or arrays with a tag first (older ones).",
    ),
    click.option(
        "--paused-loop",
        type=click.Choice(["legacy", "publishing"]),
        default="publishing",
        help="When paused, SGLang does nothing, as released, or reaps copies and publishes what is queued.",
    ),
    click.option(
        "--loop",
        type=click.Choice(list(LOOPS)),
        default="normal",
        help="Scheduler loop (SGLang); prefill and decode make one half of a pair, pipeline ignores a pause.",
    ),
    click.option(
        "--decode-radix-cache", is_flag=True, help="Let a decode worker cache and publish (decode loops)."
    ),
    click.option("--transfer-gbps", type=_GBPS, default=25.0, help="KV from prefill to decode, GB/s."),
    click.option(
        "--bootstrap-port", type=_PORT, default=0, help="Where a prefill worker is asked for prompts; 0: any."
    ),
    click.option(
        "--pair-seconds",
        type=Number(*PAIR_SECONDS),
        default=300.0,
        help="How long one half waits for the other, seconds.",
    ),
    click.option(
        "--tier",
        metavar="host=<n>x[,storage=<n>x]",
        help="HiCache tiers (vLLM: an offload connector, host only), in device sizes: host=4x,storage=10x; "
        "by default there is none.",
    ),
    click.option(
        "--write-through",
        type=click.IntRange(1, 1_000_000),
        default=1,
        help="Stores of a node before it is copied to the host (SGLang).",
    ),
    click.option("--host-gbps", type=_GBPS, default=25.0, help="Between device and host, GB/s."),
    click.option("--storage-gbps", type=_GBPS, default=2.0, help="Between host and storage, GB/s."),
    click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar="NAME=VALUE",
        help="Misbehave; repeatable, all faults are listed below, none by default.",
    ),
    click.option(
        "--profile",
        type=click.Choice(list(PROFILES)),
        default="fast",
        help="How long steps take (batch + each uncached token; decode step + each request in it): "
        + "; ".join(f"{name} {profile}" for name, profile in PROFILES.items())
        + ".",
    ),
    click.option(
        "--tokenizer",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Directory with a tokenizer.json; by default a token is a byte.",
    ),
    click.option("--seed", type=int, default=0, help="Number that the answered text is drawn from."),
]
