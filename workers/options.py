"""The command-line options of a worker, and the specs that they make."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from workers.engine.loops import LOOPS
from workers.engine.timing import PROFILES
from workers.faults import FaultError, faults_from
from workers.publisher import PublisherConfig
from workers.spec import SpecError, WorkerSpec
from workers.tiers import GIGABYTE, TierError, tiers_from

if TYPE_CHECKING:
    from collections.abc import Callable

Port = TypeVar("Port", int, "int | None")
_MOST_PORT = 65535
_PORT = click.IntRange(0, _MOST_PORT)
_RATE = click.FloatRange(0.0, min_open=True)


def worker_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that make a WorkerSpec."""
    for option in reversed(OPTIONS):
        command = option(command)
    return command


OPTIONS = [
    click.option(
        "--engine", type=click.Choice(["sglang", "vllm"]), default="sglang", help="HTTP and event dialect."
    ),
    click.option("--host", default="127.0.0.1", help="Address to bind, for HTTP and events."),
    click.option("--port", type=_PORT, default=0, help="HTTP port; 0: any."),
    click.option("--model", default="stand-in", help="Served model name."),
    click.option("--lora", "adapters", multiple=True, help="LoRA adapter to serve; repeatable."),
    click.option("--page-size", type=int, default=16, help="Tokens per block."),
    click.option("--capacity-tokens", type=int, default=200_000, help="Tokens of KV cache per rank."),
    click.option("--dp", type=int, default=1, help="Data-parallel ranks, each with its own cache."),
    click.option("--max-model-len", type=int, default=131_072, help="Longest prompt and output, tokens."),
    click.option("--chunk-tokens", type=int, default=8192, help="Most tokens of one prefill batch."),
    click.option("--max-running", type=int, default=256, help="Most requests decoded at once, per rank."),
    click.option("--bigram", is_flag=True, help="Cache token pairs, as EAGLE and MTP models do."),
    click.option("--events/--no-events", default=True, help="Publish KV events."),
    click.option("--kv-port", type=_PORT, default=0, help="Event port of rank 0; 0: any."),
    click.option(
        "--kv-connect", metavar="tcp://HOST:PORT", help="Connect rank 0's publisher there, bind none."
    ),
    click.option("--replay-port", type=_PORT, default=0, help="Replay port of rank 0; 0: any."),
    click.option("--replay/--no-replay", default=True, help="Answer replay requests."),
    click.option("--replay-framing", type=click.Choice(["current", "legacy"]), default="current"),
    click.option("--topic", default="", help="Event topic."),
    click.option("--hwm", type=click.IntRange(1), default=100_000, help="Batches queued per subscriber."),
    click.option("--buffer-steps", type=click.IntRange(1), default=10_000, help="Batches kept for replay."),
    click.option(
        "--hash-form", type=click.Choice(["int", "bytes"]), default="int", help="Block hashes (vLLM)."
    ),
    click.option(
        "--event-shape", type=click.Choice(["map", "array"]), default="map", help="Current or older."
    ),
    click.option(
        "--paused-loop",
        type=click.Choice(["legacy", "publishing"]),
        default="publishing",
        help="Whether a paused SGLang scheduler publishes what is queued.",
    ),
    click.option(
        "--loop",
        type=click.Choice(list(LOOPS)),
        default="normal",
        help="Scheduler loop (SGLang); prefill and decode make one half of a pair.",
    ),
    click.option("--decode-radix-cache", is_flag=True, help="Let a decode worker cache and publish."),
    click.option("--transfer-gbps", type=_RATE, default=25.0, help="KV from prefill to decode, GB/s."),
    click.option(
        "--bootstrap-port", type=_PORT, default=0, help="Where a prefill worker is asked for prompts; 0: any."
    ),
    click.option("--pair-seconds", type=_RATE, default=300.0, help="How long one half waits for the other."),
    click.option("--tier", metavar="host=4x,storage=10x", help="HiCache tiers, in device sizes."),
    click.option(
        "--write-through",
        type=click.IntRange(1),
        default=1,
        help="Stores of a node before it is copied.",
    ),
    click.option("--host-gbps", type=_RATE, default=25.0, help="Between device and host, GB/s."),
    click.option("--storage-gbps", type=_RATE, default=2.0, help="Between host and storage, GB/s."),
    click.option(
        "--fault", "faults", multiple=True, metavar="NAME=VALUE", help="Misbehave, see workers/faults.py."
    ),
    click.option("--profile", type=click.Choice(list(PROFILES)), default="fast", help="How fast steps are."),
    click.option(
        "--tokenizer",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Directory with tokenizer.json; without one: a token per byte.",
    ),
    click.option("--seed", type=int, default=0, help="Of the text that is answered."),
]


def spec_from(options: dict[str, Any]) -> WorkerSpec:
    """Return the spec that the options describe; raises UsageError for a value no worker can have."""
    events = PublisherConfig(
        host=options["host"],
        port=options.pop("kv_port"),
        replay_port=_if(options.pop("replay"), options.pop("replay_port")),
        topic=options.pop("topic"),
        connect=options.pop("kv_connect"),
        hwm=options.pop("hwm"),
        buffer_steps=options.pop("buffer_steps"),
        framing=options.pop("replay_framing"),
    )
    try:
        options["tiers"] = tiers_from(
            options.pop("tier"),
            write_through=options.pop("write_through"),
            host_gbps=options.pop("host_gbps"),
            storage_gbps=options.pop("storage_gbps"),
        )
        options["faults"] = faults_from(options.pop("faults"))
        options["transfer_bandwidth"] = options.pop("transfer_gbps") * GIGABYTE
        return WorkerSpec(events=_if(options.pop("events"), events), **options)
    except (FaultError, SpecError, TierError) as error:
        raise click.UsageError(str(error)) from error


def _if(condition: bool, value: Any) -> Any:
    return value if condition else None


def consecutive(spec: WorkerSpec, count: int) -> list[WorkerSpec]:
    """Return `count` specs on ports after each other; port 0 stays 0."""
    return [
        replace(
            spec,
            port=_after(spec.port, number),
            bootstrap_port=_after(spec.bootstrap_port, number),
            events=spec.events
            and replace(
                spec.events,
                port=_after(spec.events.port, number * spec.dp),
                replay_port=_after(spec.events.replay_port, number * spec.dp),
            ),
        )
        for number in range(count)
    ]


def _after(port: Port, offset: int) -> Port:
    if port and port + offset > _MOST_PORT:
        raise click.UsageError(f"port {port} and the {offset} after it go past {_MOST_PORT}")
    return port + offset if port else port
