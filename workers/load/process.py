"""The processes that make the load: each has its share of the requests, all go by one clock."""

from __future__ import annotations

import asyncio
import gc
import signal
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import TYPE_CHECKING, cast

import uvloop

from router.proxy.limits import Limits
from router.proxy.upstream import Upstream
from workers.load.client import Outcome, send
from workers.load.prompts import body

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from multiprocessing.context import SpawnProcess

    from workers.traces.source import Source
    from workers.traces.workload import Ask

_AHEAD_SECONDS = 0.5  # from the last process's readiness to the workload's time 0
_PREPARE_SECONDS = 0.05  # a body is made that long before it is sent


class LoadFailed(Exception):
    """A process of the load generator has ended early; its own words are on stderr."""


@dataclass(frozen=True, slots=True)
class Target:
    """What is asked, and how. `timeout`: seconds without a byte after which an answer is given up."""

    url: str
    model: str
    form: str = "ids"
    vocabulary: int = 30_000
    salt: int = 0
    key: str | None = None
    timeout: float = 600.0


def load(source: Source, target: Target, processes: int) -> Generator[Outcome]:
    """Yield the outcome of every request, as they end. Whatever ends it, no process is left behind."""
    active: dict[Connection, SpawnProcess] = {}
    try:
        for number in range(processes):
            _start(source, target, number, processes, active)
        for connection in active:
            _receive(connection, active)
        start = monotonic() + _AHEAD_SECONDS
        for connection in active:
            connection.send(start)
        while active:
            for ready in wait(list(active)):
                yield from _take(cast("Connection", ready), active)
    finally:
        for process in active.values():
            process.terminate()
            process.join()


def _start(
    source: Source, target: Target, number: int, processes: int, active: dict[Connection, SpawnProcess]
) -> None:
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(source, target, number, processes, theirs), daemon=True)
    with _no_interrupts():  # a terminal's Ctrl-C is for this process alone
        process.start()
    theirs.close()
    active[ours] = process


@contextmanager
def _no_interrupts() -> Iterator[None]:
    """Hold SIGINT back for a moment; from who is started meanwhile it is held back for good."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _receive(connection: Connection, active: dict[Connection, SpawnProcess]) -> Outcome | None:
    """Return an outcome; None from one that is ready, and at the end."""
    try:
        return cast("Outcome | None", connection.recv())
    except (EOFError, ConnectionResetError):
        active[connection].join()
        raise LoadFailed("a process of the load generator has failed") from None


def _take(connection: Connection, active: dict[Connection, SpawnProcess]) -> Iterator[Outcome]:
    outcome = _receive(connection, active)
    if outcome is not None:
        yield outcome
        return
    active.pop(connection).join()
    connection.close()


def _work(source: Source, target: Target, number: int, processes: int, connection: Connection) -> None:
    asks = source.load().asks[number::processes]
    gc.freeze()
    with suppress(EOFError, ConnectionError):
        connection.send(None)
        start: float = connection.recv()
        uvloop.run(_run(asks, target, start, connection))
        connection.send(None)


async def _run(asks: tuple[Ask, ...], target: Target, start: float, connection: Connection) -> None:
    """Send every request at its time, however many are under way."""
    limits = Limits(idle_seconds=target.timeout, first_byte_seconds=target.timeout)
    client = Upstream(target.url, limits=limits, key=target.key)
    make = partial(body, form=target.form, vocabulary=target.vocabulary, model=target.model, salt=target.salt)

    async def one(ask: Ask, made: bytes, due: float) -> None:
        await asyncio.sleep(due - monotonic())
        connection.send(await send(client, ask, made, due))

    async with asyncio.TaskGroup() as group:
        for ask in asks:
            due = start + ask.at
            await asyncio.sleep(due - _PREPARE_SECONDS - monotonic())
            group.create_task(one(ask, make(ask), due))
    await client.close()
