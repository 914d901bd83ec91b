"""One simulated worker: a rank, its loop, and the time up to which they have run.

Messages are applied between two iterations, as a scheduler receives them (`workers.driver` does the same in
real time). Nothing is run before somebody wants to know: `catch_up` runs all that ends by then.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from workers.engine import control
from workers.engine.loops import LOOPS, NormalLoop
from workers.engine.rank import EngineConfig, Rank

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.events import Batch
    from workers.engine.request import Request

_NEVER = float("inf")


class SimWorker:
    """`publishes` is given each batch of events, `tells` each request that has news and the time of it.

    `quiet`: neither will be called for anything before that time, unless a message comes.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        publishes: Callable[[Batch], None],
        tells: Callable[[Request, float], None],
        loop: str = "normal",
        leaps: bool = True,
    ) -> None:
        """`leaps` False: each iteration is run by itself, which takes longer and changes nothing."""
        self.rank = Rank(config)
        self.quiet = _NEVER
        self._loop = LOOPS[loop](self.rank)
        self._leaping = self._loop if leaps and isinstance(self._loop, NormalLoop) else None
        self._publishes, self._tells = publishes, tells
        self._messages: deque[Callable[[float], None]] = deque()
        self._running = False  # a batch, which `_end` is the end of; else that of a copy between tiers
        self._end: float | None = None

    def post(self, message: Callable[[float], None], now: float) -> None:
        """Apply a message between two iterations, at once if none is under way."""
        self.run(now)
        self._messages.append(message)
        if not self._running:
            self._iterate(now)
        self._look_ahead()

    def submit(self, request: Request, now: float) -> None:
        """Queue a request."""
        self.post(lambda _now: control.submit(self.rank, request), now)

    def catch_up(self, now: float) -> None:
        """Run what ends by `now`, if there will be news in it."""
        if self.quiet <= now:
            self.run(now)
            self._look_ahead()

    def at(self, now: float) -> Rank:
        """Return the rank as it is at a time."""
        self.run(now)
        self._look_ahead()
        return self.rank

    def run(self, now: float) -> None:
        """Run everything that ends by `now`."""
        while self._end is not None and self._end <= now:
            if self._leaping is not None and self._running and not self._messages:
                self._end = self._leaping.leap(self._end, now)
                self._deliver(now)
                if self._end is None or self._end > now:
                    continue
            self._iterate(self._end)

    def _iterate(self, now: float) -> None:
        self._loop.complete(now)
        self._deliver(now)
        while self._messages:
            self._messages.popleft()(now)
        end = self._loop.begin(now)
        self._deliver(now)
        self._running = end is not None
        self._end = self.rank.next_ack if end is None else end

    def _deliver(self, now: float) -> None:
        rank = self.rank
        if rank.outbox:
            for batch in rank.take_outbox():
                self._publishes(batch)
        if rank.progress:
            for request in rank.take_progress():
                self._tells(request, now)

    def _look_ahead(self) -> None:
        if self._end is None:
            self.quiet = _NEVER
        elif self._leaping is None or not self._running or self._messages:
            self.quiet = self._end
        else:
            self.quiet = self._leaping.quiet_until(self._end)
