"""Runs one rank in real time on the event loop: the only place where the engine meets a clock.

Messages (requests, aborts, control) are applied between two iterations, as a scheduler receives them. One
task drives the rank whatever the number of requests; nothing here runs once per token.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from time import monotonic, time
from typing import TYPE_CHECKING, TypeVar

from workers.engine import control
from workers.engine.load import LoadReport
from workers.engine.wire import encode

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from workers.engine.events import Event
    from workers.engine.loops import Loop
    from workers.engine.rank import Rank
    from workers.engine.request import Request
    from workers.publisher import Publisher

T = TypeVar("T")
_GRAIN_SECONDS = 0.0005  # shorter than this a timer is not worth its trouble
_CATCH_UP_SECONDS = 0.05  # a process held up for longer does not make up for it
_POLL_SECONDS = 0.01


class Driver:
    """A rank, its loop, its publisher (None: it publishes nothing), and the messages on their way to it.

    `wall` turns the rank's clock into seconds since the epoch.
    """

    def __init__(
        self,
        rank: Rank,
        number: int,
        publisher: Publisher | None,
        shape: Callable[[Event], Any],
        loop: Loop,
    ) -> None:
        self.rank = rank
        self.number = number
        self.publisher = publisher
        self._shape = shape
        self._loop = loop
        self._load = None if publisher is None or publisher.load is None else LoadReport(rank, number)
        self._messages: deque[Callable[[float], None]] = deque()
        self._wake = asyncio.Event()
        self.wall = time() - monotonic()

    async def run(self) -> None:
        """Drive the rank until cancelled."""
        now = monotonic()
        while True:
            self._loop.complete(now)
            self._deliver()
            while self._messages:
                self._messages.popleft()(now)
            end = self._loop.begin(now)
            self._deliver()
            self._report_load(waits=end is None)
            now = await self._pass_time(end)

    async def _pass_time(self, end: float | None) -> float:
        if end is None:
            await self._woken()
            return monotonic()
        delay = end - monotonic()
        await asyncio.sleep(delay if delay > _GRAIN_SECONDS else 0)
        late = monotonic()
        return end if late - end < _CATCH_UP_SECONDS else late

    async def _woken(self) -> None:
        """Wait for a message, or for a copy under way to end."""
        ack = self.rank.next_ack
        with suppress(TimeoutError):
            async with asyncio.timeout(None if ack is None else max(0.0, ack - monotonic())):
                await self._wake.wait()
        self._wake.clear()

    def _deliver(self) -> None:
        for batch in self.rank.take_outbox():
            if self.publisher is not None:
                batch.ts += self.wall
                self.publisher.send(encode(batch, self.number, self._shape))
        for request in self.rank.take_progress():
            request.notify()

    def _report_load(self, *, waits: bool) -> None:
        if self.publisher is None or self._load is None:
            return
        if (stat := self._load.due(waits=waits)) is not None:
            self.publisher.send_load(stat)

    def post(self, message: Callable[[float], None]) -> None:
        """Apply a message between two iterations."""
        self._messages.append(message)
        self._wake.set()

    def submit(self, request: Request) -> None:
        """Queue a request."""
        self.post(lambda _now: control.submit(self.rank, request))

    def abort(self, request: Request) -> None:
        """End a request early."""
        self.post(lambda _now: control.abort(self.rank, request))

    def end_all(self) -> None:
        """End every request and any pause."""

        def apply(_now: float) -> None:
            control.resume(self.rank)
            control.abort_all(self.rank)

        self.post(apply)

    async def call(self, message: Callable[[Rank, float], T]) -> T:
        """Apply a message that answers, and return its answer."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def apply(now: float) -> None:
            if not answer.done():
                answer.set_result(message(self.rank, now))

        self.post(apply)
        return await answer

    async def until(self, condition: Callable[[Rank], bool], seconds: float) -> bool:
        """Return whether a condition came true between two iterations within `seconds`."""
        deadline = monotonic() + seconds
        while not await self.call(lambda rank, _now: condition(rank)):
            if monotonic() >= deadline:
                return False
            await asyncio.sleep(_POLL_SECONDS)
        return True
