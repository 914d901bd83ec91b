"""Options of a command line that say nothing, or exclude each other: one line that names them.

A default is never at fault: only what was given is looked at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from workers.checks import MOST_PORT
from workers.faults import NONE, OF_PUBLISHER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workers.spec import WorkerSpec

_EVENTS = (
    "kv_port",
    "kv_connect",
    "replay_port",
    "replay_framing",
    "topic",
    "hwm",
    "buffer_steps",
    "event_shape",
)
_NAMES = {
    "events.port": "--kv-port",
    "events.connect": "--kv-connect",
    "events.replay_port": "--replay-port",
    "events.load_port": "--load-port",
    "events.hwm": "--hwm",
    "events.buffer_steps": "--buffer-steps",
    "adapters": "--lora",
    "transfer_bandwidth": "--transfer-gbps",
    "host_bandwidth": "--host-gbps",
    "storage_bandwidth": "--storage-gbps",
}


def option(setting: str) -> str:
    """Return the option that a setting of a spec comes from."""
    return _NAMES.get(setting, "--" + setting.replace("_", "-"))


def check_given(given: frozenset[str], spec: WorkerSpec) -> None:
    """Return if every option that was given has an effect on the worker; raises UsageError."""
    for names, holds, wanted in _rules(spec):
        for name in names:
            if name in given and not holds:
                raise click.UsageError(f"{option(name)} has no effect: {wanted}")
    _check_faults(spec)


def _check_faults(spec: WorkerSpec) -> None:
    for name in OF_PUBLISHER:
        if getattr(spec.faults, name) != getattr(NONE, name) and not spec.publishes:
            raise click.UsageError(f"--fault {name} has no effect: it needs a worker that publishes events")


def _rules(spec: WorkerSpec) -> list[tuple[Sequence[str], object, str]]:
    """Return which options have an effect only if something holds, and what that is."""
    sglang, replay = spec.engine == "sglang", spec.events is not None and spec.events.replay_port is not None
    silent = "a decode loop publishes only with --decode-radix-cache, --no-events not at all"
    return [
        ((*_EVENTS, "load_port"), spec.publishes, f"it needs a worker that publishes events ({silent})"),
        (("replay_port", "replay_framing", "buffer_steps"), replay, "--no-replay answers none"),
        (("write_through", "host_gbps", "storage_gbps"), spec.tiers is not None, "it needs --tier"),
        (
            ("storage_gbps",),
            spec.tiers is not None and spec.tiers.storage,
            "it needs --tier ...,storage=<n>x",
        ),
        (("write_through", "paused_loop"), sglang, "it is SGLang's only"),
        (("paused_loop",), spec.loop != "pipeline", "a pipeline loop is not paused"),
        (("bootstrap_port",), spec.hands_over, "it needs a prefill loop, or vLLM"),
        (("transfer_gbps", "pair_seconds"), spec.role != "both" or not sglang, "it needs one half of a pair"),
    ]


def check_ports(spec: WorkerSpec, count: int) -> None:
    """Return if all ports that `count` workers ask for differ and exist; raises UsageError naming options."""
    taken: dict[int, str] = {}
    for setting, base, width in _bases(spec):
        name, end = option(setting), base + count * width - 1
        if end > MOST_PORT:
            raise click.UsageError(f"{name}: {base} and the {end - base} ports after it go past {MOST_PORT}")
        for port in range(base, end + 1):
            if port in taken:
                raise click.UsageError(f"{taken[port]} and {name} would both take port {port}")
            taken[port] = name


def _bases(spec: WorkerSpec) -> Iterator[tuple[str, int, int]]:
    """Yield setting and first port of each range that is asked for, and how many of it a worker needs."""
    bases: list[tuple[str, int | None, int]] = [
        ("port", spec.port, 1),
        ("bootstrap_port", spec.bootstrap_port, 1),
    ]
    if spec.events is not None:
        names = ("port", "replay_port", "load_port")
        bases += [(f"events.{name}", getattr(spec.events, name), spec.dp) for name in names]
    yield from ((setting, base, width) for setting, base, width in bases if base)
