"""The options that name a workload, for all commands that run one; wrong ones are UsageErrors of a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from workers.givens import option
from workers.options import Number
from workers.traces.catalogue import GENERATORS, settings_of
from workers.traces.source import Source
from workers.traces.workload import WorkloadError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from workers.traces.workload import Workload

_PATH = click.Path(dir_okay=False, path_type=Path)
_ONLY_WORKLOAD, _ONLY_TRACE = ("qps", "seconds"), ("spread",)


def _described(name: str) -> str:
    return f"  {name}: " + ", ".join(f"{key}={value:g}" for key, value in settings_of(name).items())


WORKLOADS = "\n".join(
    [
        "\b",
        "Workloads (--workload NAME,setting=N,...) and their settings; times in seconds, lengths in tokens:",
    ]
    + [_described(name) for name in GENERATORS]
)
SOURCE_OPTIONS = [
    click.option(
        "--trace", type=_PATH, metavar="FILE", help="A trace in Mooncake's form, one JSON object a line."
    ),
    click.option(
        "--workload", metavar="NAME[,setting=N...]", help="A generated workload, of those listed below."
    ),
    click.option(
        "--speed", type=Number(0.01, 1000), default=1.0, help="Multiple of the workload's own speed."
    ),
    click.option(
        "--spread/--no-spread",
        default=True,
        help="Let requests that a trace has at one moment come evenly until the next moment.",
    ),
    click.option("--qps", type=Number(0.001, 100_000), help="Requests a second of a --workload."),
    click.option("--seconds", type=Number(0.1, 1_000_000), help="Length of a --workload."),
    click.option(
        "--requests", type=click.IntRange(0, 10_000_000), default=0, help="Only the first so many; 0: all."
    ),
    click.option("--seed", type=int, default=0, help="Number that everything random is drawn from."),
]
JSON_OPTION = click.option("--json", "json_path", type=_PATH, metavar="FILE", help="Write all results there.")


def add(options: Sequence[Any], command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with options, in their order."""
    for one in reversed(options):
        command = one(command)
    return command


def check_source(options: dict[str, Any], given: frozenset[str], *, instead: str = "") -> None:
    """Raise UsageError unless there is just one workload, and all `given` options have an effect on it.

    `instead` is what may be given in its place.
    """
    trace, workload = options["trace"], options["workload"]
    if (trace is None) == (workload is None):
        raise click.UsageError(f"give either --trace FILE, or --workload NAME{instead}")
    if trace is None:
        refuse(_ONLY_TRACE, given, "{} has no effect without --trace")
    else:
        refuse(_ONLY_WORKLOAD, given, "{} has no effect on --trace: see --speed")


def refuse(names: Iterable[str], given: frozenset[str], why: str) -> None:
    """Raise UsageError for the first of some options that is among the `given` ones."""
    for name in names:
        if name in given:
            raise click.UsageError(why.format(option(name)))


def source_from(options: dict[str, Any]) -> Source:
    """Return the one workload that is asked for."""
    text = options["workload"] or ""
    for name in _ONLY_WORKLOAD:
        text += "" if options[name] is None else f",{name}={options[name]:g}"
    return Source(
        options["trace"],
        text,
        options["seed"],
        speed=options["speed"],
        requests=options["requests"],
        spread=options["spread"],
    )


def loaded(source: Source) -> Workload:
    """Return a workload."""
    try:
        return source.load()
    except WorkloadError as error:
        raise click.UsageError(str(error)) from error
