"""The options of `python -m workers simulate`: texts, bounds and defaults. What they make: `asked`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from router.core.cost import POLICIES, Weights
from workers.engine.timing import PROFILES
from workers.options import Number
from workers.traces.options import JSON_OPTION, SOURCE_OPTIONS, add

if TYPE_CHECKING:
    from collections.abc import Callable

_OPTIONS = [
    *SOURCE_OPTIONS,
    click.option(
        "--table",
        is_flag=True,
        help="All policies on all workloads (those of a --trace, too), and one with "
        "several routers, restarts, and lost caches: takes minutes.",
    ),
    click.option(
        "--policies",
        default="all",
        metavar="A,B,...",
        help="Policies to compare: " + ", ".join(POLICIES) + ".",
    ),
    click.option(
        "--router",
        default="events",
        metavar="A,B,...",
        help="What routers know: events, events-lag=SECONDS, or "
        "approximate, which is only what they have sent.",
    ),
    click.option("--workers", type=click.IntRange(1, 512), default=8, help="Workers of the fleet."),
    click.option(
        "--replicas", type=click.IntRange(1, 64), default=1, help="Routers, which take the requests in turn."
    ),
    click.option(
        "--share",
        type=Number(0, 3600),
        help="Routers tell each other what they send, this many seconds late.",
    ),
    click.option(
        "--restart-router", type=click.IntRange(0, 10_000), default=0, help="Times that a router starts anew."
    ),
    click.option(
        "--lose-caches",
        type=click.IntRange(0, 10_000),
        default=0,
        help="Times that a worker loses its caches.",
    ),
    click.option(
        "--kv-tokens",
        type=click.IntRange(1024, 1_000_000_000),
        default=300_000,
        help="KV cache of a worker, tokens.",
    ),
    click.option(
        "--page-size",
        type=click.IntRange(1, 4096),
        help="Tokens per block; by default 512 with a --trace, whose "
        "prompts agree in whole blocks of that size, else 16.",
    ),
    click.option(
        "--host-tier",
        metavar="<n>x|host=<n>x,storage=<n>x",
        help="Tiers below the device, in device sizes: 10x.",
    ),
    click.option(
        "--host-gbps", type=Number(0.001, 100_000), default=25.0, help="Between device and host, GB/s."
    ),
    click.option(
        "--storage-gbps", type=Number(0.001, 100_000), default=2.0, help="Between host and storage, GB/s."
    ),
    click.option(
        "--profile",
        type=click.Choice(list(PROFILES)),
        default="h100-32b",
        help="How long steps take: see serve --help.",
    ),
    click.option(
        "--max-running", type=click.IntRange(1, 100_000), default=256, help="Most requests decoded at once."
    ),
    click.option(
        "--chunk-tokens",
        type=click.IntRange(16, 1_000_000),
        default=8192,
        help="Most tokens of a prefill batch.",
    ),
    click.option(
        "--weights",
        multiple=True,
        metavar="NAME=N[,NAME=N...]",
        help="Weights of the policies, as of kv-router serve; repeat it to compare several: "
        + ", ".join(f"{name}={value:g}" for name, value in msgspec.structs.asdict(Weights()).items())
        + ".",
    ),
    click.option("--jobs", type=click.IntRange(1, 512), default=2, help="Processes to run in."),
    JSON_OPTION,
    click.option(
        "--plots",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Write plots there, PNG and one HTML page (needs the extra kv-router[plots]).",
    ),
]


def simulate_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a simulation."""
    return add(_OPTIONS, command)
