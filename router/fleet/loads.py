"""What the engines say of their load, entered into the loads that decisions are made by.

A worker with a load socket is listened to; others, and those that have said nothing of late, are asked now
and then. A word counts for some seconds only: an engine that has died, or fallen idle, says nothing any more.
"""

from __future__ import annotations

import asyncio
import logging
import time
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import zmq

from router.core.word import EngineLoad, Word
from router.engines.detect import ENGINES
from router.errors import RouterError
from router.fleet.worker import WorkerState
from router.streams.loads import LoadSocket
from router.streams.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from router.core.rank import Rank
    from router.engines.description import EventSource
    from router.fleet.worker import Worker

# More questions a second would cost more of a core than they are worth: of large pages it is 2 % of one.
_MOST_A_SECOND = 50
# For how many times the pause between two questions an answer counts, and for how long any word, in seconds.
_ROUNDS, _LEAST_SECONDS = 3, 3.0
# When a worker that does not say its load is asked again: it can be another by then.
_SILENT_SECONDS = 30.0
SOCKET, ANSWER = "socket", "answer"
_UP = frozenset({WorkerState.READY, WorkerState.PAUSED, WorkerState.DRAINING})
_log = logging.getLogger(__name__)


class _Line(NamedTuple):
    """The load sockets of one worker: what it has named, and those of it that could be opened."""

    sources: list[EventSource]
    sockets: list[LoadSocket]


class LoadWatch:
    """Watches the `workers` of a fleet, asking each every `seconds`, until its `run` is cancelled."""

    def __init__(
        self, workers: Mapping[str, Worker], zmq_context: zmq.Context[zmq.Socket[bytes]], seconds: float
    ) -> None:
        self._workers = workers
        self._context = zmq_context
        self._seconds = seconds
        self._turns = Turns()
        self._clock = time.monotonic
        self._lines: dict[Worker, _Line] = {}
        self._asking: dict[Worker, asyncio.Task[None]] = {}
        self._next: dict[Worker, float] = {}

    @property
    def interval(self) -> float:
        """How often a worker is asked, in seconds: less often where there are very many."""
        return max(self._seconds, len(self._workers) / _MOST_A_SECOND)

    async def run(self) -> None:
        """Listen, forget what is old, and ask."""
        try:
            while True:
                began = self._clock()
                workers = set(self._workers.values())
                self._listen(workers)
                self._forget(began)
                self._next = {worker: at for worker, at in self._next.items() if worker in workers}
                await self._round(began)
                await asyncio.sleep(max(0.0, began + self._seconds - self._clock()))
        finally:
            await self._close()

    def _listen(self, workers: set[Worker]) -> None:
        """Have the sockets open that the workers name now, and no others."""
        for worker in self._lines.keys() - workers:
            self._hang_up(worker)
        for worker in workers:
            said = worker.description.loads if worker.description is not None else ()
            sources = [source for source in said if source is not None]
            line = self._lines.get(worker)
            if sources != (line.sources if line is not None else []):
                self._hang_up(worker)
                self._lines[worker] = _Line(sources, [*self._opened(worker, sources)])

    def _opened(self, worker: Worker, sources: list[EventSource]) -> Iterator[LoadSocket]:
        for source in sources:
            try:
                yield LoadSocket(self._context, source, partial(self._hear, worker), turns=self._turns)
            except zmq.ZMQError as error:
                _log.warning("worker %s: load socket %s: %s", worker.url, source.endpoint, error)

    def _hang_up(self, worker: Worker) -> None:
        line = self._lines.pop(worker, None)
        for socket in line.sockets if line is not None else ():
            socket.close()

    def _hear(self, worker: Worker, number: int, load: EngineLoad) -> None:
        if number < len(worker.ranks):
            enter(worker.ranks[number], Word(load, self._clock(), SOCKET))

    async def _round(self, now: float) -> None:
        """Ask those whose turn it is and who have not spoken of late, in half of the time there is."""
        due = sorted(filter(partial(self._is_due, now), self._workers.values()), key=self._turn)
        due = due[: max(1, int(self._seconds * _MOST_A_SECOND))]
        for worker in due:
            # Rounds come a little early or late; none must be missed for that.
            self._next[worker] = now + 0.9 * self.interval
            self._asking[worker] = task = asyncio.ensure_future(self._ask(worker))
            task.add_done_callback(partial(self._asked, worker))
            await asyncio.sleep(self._seconds / len(due) / 2)

    def _turn(self, worker: Worker) -> float:
        return self._next.get(worker, 0.0)

    def _asked(self, worker: Worker, _: asyncio.Task[None]) -> None:
        self._asking.pop(worker, None)

    def _is_due(self, now: float, worker: Worker) -> bool:
        if worker.state not in _UP or worker in self._asking or self._turn(worker) > now:
            return False
        recent = now - self.interval
        return not all(rank.said is not None and rank.said.at > recent for rank in worker.ranks)

    async def _ask(self, worker: Worker) -> None:
        """Ask a worker; what goes wrong is for its supervisor to find out."""
        description, ranks = worker.description, list(worker.ranks)
        assert description is not None  # noqa: S101 - it has been up
        for rank in ranks:
            rank.load.listen()
        try:
            loads = await ENGINES[description.engine].loads(worker.side)
        except RouterError:
            return
        if not loads:
            self._next[worker] = self._clock() + _SILENT_SECONDS
        for number, load in loads.items():
            if number < len(ranks):
                enter(ranks[number], Word(load, self._clock(), ANSWER))

    def _forget(self, now: float) -> None:
        """Let go of words that have become too old."""
        lasts = {SOCKET: _LEAST_SECONDS, ANSWER: max(_LEAST_SECONDS, _ROUNDS * self.interval)}
        for worker in self._workers.values():
            for rank in worker.ranks:
                if rank.said is not None and now - rank.said.at > lasts[rank.said.by]:
                    rank.said = None
                    rank.load.forget_engine()

    async def _close(self) -> None:
        for worker in list(self._lines):
            self._hang_up(worker)
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def enter(rank: Rank, said: Word) -> None:
    """Take an engine's word on a rank's load: what of it is not our own, others have there. About 1.5 us."""
    rank.said = said
    load, told = rank.load, said.load
    load.usage = told.usage
    if told.capacity_tokens:
        load.capacity_tokens = told.capacity_tokens
    load.hear_engine(told.waiting_tokens, told.running + told.waiting)
