"""`python -m workers simulate`: policies against each other, on a fleet in virtual time."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from workers.options import given
from workers.results_file import check_writable, write
from workers.simulate.asked import check_given, runs_from, table_from
from workers.simulate.jobs import JobFailed, run_all
from workers.simulate.options import simulate_options
from workers.simulate.report import listing, matrix
from workers.traces.options import WORKLOADS, loaded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workers.simulate.recipe import Run
    from workers.simulate.results import Result
    from workers.traces.workload import Workload


@click.command(epilog=WORKLOADS)
@simulate_options
def simulate(**options: Any) -> None:
    """Compare policies in virtual time: the real engine and the real core of the router, without waiting."""
    check_given(options, given())
    if options["plots"] is not None:
        from workers.simulate.plots import prepare  # noqa: PLC0415 - matplotlib is an extra

        prepare(options["plots"])
    check_writable(options["json_path"])
    runs, troubles = table_from(options) if options["table"] else (runs_from(options), [])
    results = _run(runs + troubles, options["jobs"], partial(write, options["json_path"]))
    _show(results[: len(runs)], results[len(runs) :], in_columns=options["table"])
    if options["plots"] is not None:
        _draw(results, options["plots"])


def _run(runs: Sequence[Run], jobs: int, keep: Callable[[list[Result]], None]) -> list[Result]:
    workloads = {source: loaded(source) for source in dict.fromkeys(run.source for run in runs)}
    for run in runs:
        _check(run, workloads[run.source])
    total = sum(len(workloads[run.source].asks) for run in runs)
    with click.progressbar(length=total, label=f"{len(runs)} runs", file=sys.stderr) as bar:
        try:
            return run_all(runs, jobs, bar.update, keep)
        except JobFailed as error:
            raise click.ClickException(str(error)) from error


def _check(run: Run, workload: Workload) -> None:
    room = run.setup.longest
    if workload.longest > room:
        raise click.UsageError(
            f"{run.column} has a request of {workload.longest} tokens, a worker takes {room}: see --kv-tokens"
        )


def _show(results: Sequence[Result], troubles: Sequence[Result], *, in_columns: bool) -> None:
    click.echo(matrix(results) if in_columns else listing(results))
    if troubles:
        click.echo("\n" + matrix(troubles))


def _draw(results: Sequence[Result], directory: Path) -> None:
    from workers.simulate.plots import draw  # noqa: PLC0415 - matplotlib is an extra

    try:
        draw(results, directory)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from error
