"""Which requests go to workers now, which wait, and which are turned away.

So many may be under way in all, and so many at each worker; the rest wait in a line per model, by priority,
for a limited time. Room that comes free is handed to whoever is first: nobody who comes later takes it. What
finds its line full is refused before anything has been spent on it, so that ten times the load that workers
can bear costs the router little more than reading it.
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

from router.core.waiting import Line, Place
from router.errors import BadRequest, QueueFull, RouterError, all_paused
from router.proxy.drive import Waiter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.core.rank import Rank
    from router.observe.histogram import Histogram
    from router.proxy.headers import Field

    Look = Callable[[], list[Rank]]


PRIORITY = b"x-kv-router-priority"
_NUMBER = re.compile(rb"-?[0-9]{1,3}")


class Asked(Protocol):
    """A request, as it is told of; `model` is the one asked for, once that is known to be served here."""

    model: str | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What may be under way: requests `in_all` and `per_worker`, 0 for no limit.

    `waiting` requests of each model may wait, for so many `seconds`, and for `paused_seconds` more where
    every worker that could serve them is paused when those are over.
    """

    in_all: int = 0
    per_worker: int = 0
    waiting: int = 1024
    seconds: float = 30.0
    paused_seconds: float = 0.0


@dataclass(slots=True, eq=False)
class _Waiting:
    """A request in a line: `look` finds the ranks it could go to, `ranks` are those it was given.

    `paused` says that nobody could have any, `timer` ends its wait. `error`: why it gets none.
    """

    look: Look
    paused: Callable[[], bool]
    waiter: Waiter
    timer: asyncio.TimerHandle | None = None
    ranks: list[Rank] | None = None
    error: RouterError | None = None


class Admission:
    """Counts what is under way, and keeps the lines.

    `load_of` tells how many requests are under way at a rank's worker. `refused` counts by reason: full,
    timeout, ousted. `waits` takes the seconds that admitted requests have waited in a line.
    """

    def __init__(self, capacity: Capacity, load_of: Callable[[Rank], int], waits: Histogram) -> None:
        self._capacity = capacity
        self._is_open = not (capacity.in_all or capacity.per_worker)
        self._load_of = load_of
        self._waits = waits
        self._lines: dict[str, Line[_Waiting]] = {}
        self._loop = asyncio.get_running_loop()
        # Who has been given room and is not on its way yet: until then nobody knows where the room is left.
        self._granted: _Waiting | None = None
        self.under_way = 0
        self.refused = {"full": 0, "timeout": 0, "ousted": 0}

    def resize(self, capacity: Capacity) -> None:
        """Hold to other limits from now on; who waits keeps its place and its time."""
        self._capacity = capacity
        self._is_open = not (capacity.in_all or capacity.per_worker)
        for line in self._lines.values():
            line.most = capacity.waiting
        self.advance()

    @property
    def hold_seconds(self) -> float:
        """How long a request waits while every worker that could serve it is paused."""
        return self._capacity.paused_seconds

    @property
    def waiting(self) -> int:
        """How many requests wait."""
        return sum(map(len, self._lines.values()))

    @property
    def most_waiting(self) -> int:
        """How many requests of one model may wait."""
        return self._capacity.waiting

    def waiting_for(self) -> dict[str, int]:
        """Return how many requests wait for each model; models for which none does are not in it."""
        return {model: len(line) for model, line in self._lines.items()}

    def check(self, headers: Iterable[Field]) -> Callable[[str], None] | None:
        """Return what raises QueueFull for a request that would find no place in the line of its model.

        None when there is no line. Raises BadRequest for a priority that is none.
        """
        rank = priority(headers)
        return partial(self._check, rank) if self._lines else None

    def check_noting(self, asked: Asked, headers: Iterable[Field]) -> Callable[[str], None] | None:
        """Return the same, by which the model is noted, too."""
        admitted = self.check(headers)
        if admitted is None:
            return None

        def check(model: str) -> None:
            asked.model = model
            admitted(model)

        return check

    def _check(self, rank: int, model: str) -> None:
        line = self._lines.get(model)
        if line is not None and not line.takes(rank):
            raise self._refused("full")

    @property
    def bounds_workers(self) -> bool:
        """Whether there is a limit on what is under way at one worker."""
        return bool(self._capacity.per_worker)

    def room(self, ranks: list[Rank]) -> list[Rank]:
        """Return the ranks whose workers have room for one more request."""
        most = self._capacity.per_worker
        return [rank for rank in ranks if self._load_of(rank) < most] if most else ranks

    def take(self, model: str, ranks: list[Rank]) -> list[Rank] | None:
        """Return those of `ranks` that have room, None when the request has to `wait`.

        Not None: a place is taken, and `leave` must be called. About 0.2 us.
        """
        if self._is_open:
            self.under_way += 1
            return ranks
        free = self.room(ranks)
        return free if free and self.take_place(model) else None

    def take_place(self, model: str) -> bool:
        """Take a place whoever has room, if there is one; then `leave` must be called."""
        most = self._capacity.in_all
        if model in self._lines or self._granted is not None or (most and self.under_way >= most):
            return False
        self.under_way += 1
        return True

    def leave(self) -> None:
        """Give back what `take` or `wait` has taken, to whoever is first in a line."""
        self.under_way -= 1
        if self._lines:
            self.advance()

    def advance(self) -> None:
        """Hand room to one request, if there is any: something has changed. It then looks for the next."""
        if self._granted is not None:
            return
        for model in sorted(self._lines, key=self._turn):
            place = self._lines[model].first
            while place is not None and self._try(model, place):
                if place.item.ranks is not None:
                    return
                line = self._lines.get(model)
                place = line.first if line is not None else None

    def _try(self, model: str, place: Place[_Waiting]) -> bool:
        """Give a request what there is for it: ranks or an error."""
        waiting = place.item
        try:
            ranks = self.room(waiting.look())
        except RouterError as error:
            waiting.error = error
        else:
            most = self._capacity.in_all
            if not ranks or (most and self.under_way >= most):
                return False
            self._granted = waiting
            waiting.ranks = ranks
            self.under_way += 1
        self._go(model, place)
        return True

    def _turn(self, model: str) -> tuple[int, int]:
        first = self._lines[model].first
        return first.order if first is not None else (0, 0)

    async def wait(
        self, model: str, priority: int, look: Look, paused: Callable[[], bool] = lambda: False
    ) -> list[Rank]:
        """Wait in line, and return the ranks that have room then; `leave` must be called.

        `look` tells anew which ranks there are, `paused` whether all workers are. Raises QueueFull, NoWorker
        where all have been paused for too long, and what `look` raises.
        """
        began = perf_counter()
        waiting = _Waiting(look, paused, Waiter(self._loop))
        place = self._enter(model, priority, waiting)
        waiting.timer = self._loop.call_later(self._capacity.seconds, self._time_out, model, place)
        try:
            await waiting.waiter
        except BaseException:
            if waiting.ranks is not None:
                self._granted = None
                self.leave()  # it had just been given room
            raise
        finally:
            waiting.timer.cancel()
            self._drop(model, place)
        if waiting.ranks is None:
            assert waiting.error is not None  # noqa: S101 - one of them wakes it
            raise waiting.error
        self._granted = None
        self._waits.observe(perf_counter() - began)
        self._loop.call_soon(self.advance)  # once it is on its way: there may be room for another
        return waiting.ranks

    def _enter(self, model: str, priority: int, waiting: _Waiting) -> Place[_Waiting]:
        line = self._lines.get(model) or Line(self._capacity.waiting)
        place, ousted = line.enter(priority, waiting)
        if place is None:
            raise self._refused("full")
        self._lines[model] = line
        if ousted is not None:
            self._give_up(model, ousted, "ousted")
        return place

    def _time_out(self, model: str, place: Place[_Waiting]) -> None:
        """End a wait for room, unless there is nobody who could have any: then it is a wait for a pause."""
        waiting, seconds = place.item, self._capacity.paused_seconds
        with suppress(RouterError):
            if seconds and waiting.paused():
                waiting.timer = self._loop.call_later(seconds, self._end_pause, model, place)
                return
        self._give_up(model, place, "timeout")

    def _end_pause(self, model: str, place: Place[_Waiting]) -> None:
        if place.item.ranks is None and place.item.error is None:
            place.item.error = all_paused(self._capacity.paused_seconds, retry_after=1)
            self._go(model, place)

    def _give_up(self, model: str, place: Place[_Waiting], why: str) -> None:
        if place.item.ranks is None and place.item.error is None:
            place.item.error = self._refused(why)
            self._go(model, place)

    def _go(self, model: str, place: Place[_Waiting]) -> None:
        self._drop(model, place)
        # In a turn of its own: the request goes on within the wake, and may change the lines.
        self._loop.call_soon(place.item.waiter.wake)

    def _drop(self, model: str, place: Place[_Waiting]) -> None:
        line = self._lines.get(model)
        if line is not None:
            line.leave(place)
            if not len(line):
                del self._lines[model]

    def _refused(self, why: str) -> QueueFull:
        self.refused[why] += 1
        return QueueFull(_REASONS[why], retry_after=1)


_REASONS = {
    "full": "too many requests wait for a worker already",
    "timeout": "no worker had room for the request in time",
    "ousted": "a request of higher priority has taken this one's place in the line",
}


def priority(headers: Iterable[Field]) -> int:
    """Return what a request's x-kv-router-priority says, 0 without. Raises BadRequest for anything else."""
    for name, value in headers:
        if name == PRIORITY:
            if _NUMBER.fullmatch(value):
                return int(value)
            raise BadRequest(
                f"{PRIORITY.decode()}: expected a whole number from -999 to 999, higher goes first"
            )
    return 0
