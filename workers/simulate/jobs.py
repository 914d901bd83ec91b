"""Runs in processes of their own, one at a time in each; what they say comes back over pipes."""

from __future__ import annotations

import gc
import signal
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, cast

from workers.simulate.run import simulate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.context import SpawnProcess

    from workers.simulate.recipe import Run
    from workers.simulate.results import Result

    Waiting = Iterator[tuple[int, Run]]


class JobFailed(Exception):
    """A process has ended without the result of its run; its own words are on stderr."""


@dataclass(slots=True)
class _Job:
    """A process, and the run that it is at."""

    process: SpawnProcess
    place: int
    run: Run


def run_all(
    runs: Sequence[Run],
    jobs: int,
    progress: Callable[[int], None],
    keep: Callable[[list[Result]], None],
) -> list[Result]:
    """Return the results of all runs, in their order; at most `jobs` run at a time.

    `progress` is told how many more requests have been sent, `keep` after each run what there is by then.
    Raises JobFailed; whatever ends it, no process is left behind.
    """
    waiting = iter(enumerate(runs))
    active: dict[Connection, _Job] = {}
    results: dict[int, Result] = {}
    try:
        for _ in range(min(jobs, len(runs))):
            _start(waiting, active)
        while active:
            for ready in wait(list(active)):
                if _take(cast("Connection", ready), active, waiting, results, progress):
                    keep(_in_order(results))
    finally:
        for job in active.values():
            job.process.terminate()
            job.process.join()
    return _in_order(results)


def _in_order(results: dict[int, Result]) -> list[Result]:
    return [results[place] for place in sorted(results)]


def _start(waiting: Waiting, active: dict[Connection, _Job]) -> None:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True)
    process.start()
    theirs.close()
    place, run = next(waiting)
    active[ours] = _Job(process, place, run)
    ours.send(run)


def _take(
    connection: Connection,
    active: dict[Connection, _Job],
    waiting: Waiting,
    results: dict[int, Result],
    progress: Callable[[int], None],
) -> bool:
    """Take what a process says; once it is a result, give it the next run, or let it go, and say so."""
    job = active[connection]
    try:
        said = connection.recv()
    except (EOFError, ConnectionResetError):
        job.process.join()
        raise JobFailed(f"the run of {job.run.setup.policy} on {job.run.column} has failed") from None
    if isinstance(said, int):
        progress(said)
        return False
    results[job.place] = said
    if (following := next(waiting, None)) is None:
        del active[connection]
        connection.close()
        job.process.join()
    else:
        job.place, job.run = following
        connection.send(job.run)
    return True


def _work(connection: Connection) -> None:
    """Simulate what is asked for until the other side has gone; cycles are collected between runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    with suppress(EOFError, ConnectionError):
        while True:
            run: Run = connection.recv()
            workload = replace(run.source.load(), name=run.column)
            connection.send(simulate(workload, run.setup, connection.send))
            gc.collect()
