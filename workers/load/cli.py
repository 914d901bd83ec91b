"""`python -m workers load`: a workload against a router, or anything else that completes prompts."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from router.errors import ConfigError
from router.proxy.origin import parse_origin
from workers.load.process import LoadFailed, Target
from workers.load.process import load as put_load
from workers.load.prompts import FORMS
from workers.load.result import Live, notes
from workers.options import EXIT_INTERRUPTED, Number, given
from workers.results_file import check_writable, write
from workers.simulate.report import listing
from workers.traces.options import (
    JSON_OPTION,
    SOURCE_OPTIONS,
    WORKLOADS,
    add,
    check_source,
    loaded,
    source_from,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.load.client import Outcome
    from workers.traces.source import Source
    from workers.traces.workload import Workload

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
        "--salt",
        type=click.IntRange(min=0),
        default=0,
        help="Another number makes other prompts of the same lengths and shared parts: a second run with the "
        "same one finds prompts of the first still cached, whatever its --seed.",
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
        options["salt"],
        options["api_key"],
        options["timeout"],
    )
    outcomes, whole = _put(source, target, options["processes"], workload)
    live = Live.of(outcomes, url=url, workload=workload.name, name=options["name"] or url)
    click.echo(listing([live.result]))
    for note in notes(live, len(workload.asks)):
        click.echo(note)
    write(options["json_path"], live)
    if not whole:
        sys.exit(EXIT_INTERRUPTED)
    if live.result.unended == live.result.requests:
        raise click.ClickException("not one request was answered")


def _put(source: Source, target: Target, processes: int, workload: Workload) -> tuple[list[Outcome], bool]:
    """Return the outcomes by their time, and True; once interrupted those that there are, and False."""
    outcomes: list[Outcome] = []
    whole = True
    with (
        click.progressbar(length=len(workload.asks), label=workload.name, file=sys.stderr) as bar,
        closing(put_load(source, target, processes)) as coming,
    ):
        try:
            for outcome in coming:
                outcomes.append(outcome)
                bar.update(1)
        except LoadFailed as error:
            raise click.ClickException(str(error)) from error
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # what there is, is shown and written
            whole = False
    return sorted(outcomes, key=lambda outcome: outcome.record.at), whole
