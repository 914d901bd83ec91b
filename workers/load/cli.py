"""`python -m workers load`: a workload against a router, or anything else that completes prompts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from router.errors import ConfigError
from router.proxy.origin import parse_origin
from workers.load.process import LoadFailed, Target
from workers.load.process import load as put_load
from workers.load.prompts import FORMS
from workers.load.result import Live, notes
from workers.options import Number, given
from workers.simulate.report import listing
from workers.traces.options import (
    JSON_OPTION,
    SOURCE_OPTIONS,
    WORKLOADS,
    add,
    check_source,
    check_writable,
    loaded,
    source_from,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_OPTIONS = [
    click.option("--url", required=True, metavar="URL", help="Where POST /v1/completions is answered."),
    *SOURCE_OPTIONS,
    click.option("--model", default="stand-in", help="Model to ask for."),
    click.option(
        "--prompts",
        type=click.Choice(FORMS),
        default="ids",
        help="Prompts as token ids, as words (about a token each), or letters (a token each to a stand-in).",
    ),
    click.option(
        "--vocabulary",
        type=click.IntRange(1000, 10_000_000),
        default=30_000,
        help="Token ids are below; of use with --prompts ids.",
    ),
    click.option(
        "--api-key", metavar="KEY", envvar="KV_LOAD_API_KEY", help="Sent as Authorization: Bearer KEY."
    ),
    click.option(
        "--timeout", type=Number(0.1, 86_400), default=600.0, help="Longest silence of an answer, seconds."
    ),
    click.option("--processes", type=click.IntRange(1, 256), default=2, help="Processes that make the load."),
    click.option("--name", default="", show_default="the URL", help="What to call it in the table."),
    JSON_OPTION,
]


def _options(command: Callable[..., None]) -> Callable[..., None]:
    return add(_OPTIONS, command)


@click.command(epilog=WORKLOADS)
@_options
def load(**options: Any) -> None:
    """Put a workload on something live: open loop, each request at its time, however many are under way.

    Times are those of the workload: Poisson, or the trace's. Weight syncs of a workload are left out.
    """
    check_source(options, given())
    check_writable(options["json_path"])
    url: str = options["url"]
    try:
        parse_origin(url)
    except ConfigError as error:
        raise click.UsageError(f"--url: {error.message}") from error
    source = source_from(options)
    workload = loaded(source)
    target = Target(
        url.rstrip("/"),
        options["model"],
        options["prompts"],
        options["vocabulary"],
        options["api_key"],
        options["timeout"],
    )
    with click.progressbar(length=len(workload.asks), label=workload.name, file=sys.stderr) as bar:
        try:
            outcomes = put_load(source, target, options["processes"], bar.update)
        except LoadFailed as error:
            raise click.ClickException(str(error)) from error
    live = Live.of(outcomes, url=url, workload=workload.name, name=options["name"] or url)
    click.echo(listing([live.result]))
    for note in notes(live):
        click.echo(note)
    _write(live, options["json_path"])
    if live.result.unended == live.result.requests:
        raise click.ClickException("not one request was answered")


def _write(live: Live, path: Path | None) -> None:
    try:
        if path is not None:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(live)) + b"\n")
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
