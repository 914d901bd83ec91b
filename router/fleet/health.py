"""What a worker's answers say of it, and what follows: a line in the log, another table of routes, a look.

Two things keep requests away from a worker that is up, as long as another one can take them: its breaker, and
its own word that it has too much to do (429, 503), which holds until the time it named is over.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from router.core.breaker import CONTACT, Breaker, BreakerState
from router.observe.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core.breaker import BreakerRules, Failure

# In seconds: how long a worker that names no time counts as loaded, and the longest it may name.
UNNAMED_SECONDS, LONGEST_SECONDS = 1.0, 30.0
_log = logging.getLogger(__name__)


class Health:
    """One worker's. `on_change` is called when it begins or ceases to take requests.

    `look` is called when contact is lost, to have the worker probed at once. `refusals` counts its own 429
    and 503. Methods are cheap, but not for every request: while `breaker.troubled` is False there is nothing
    to tell but `breaker.good`.
    """

    def __init__(self, url: str, rules: BreakerRules, on_change: Callable[[], None]) -> None:
        self.breaker = Breaker(rules)
        self.rules = rules
        self.look: Callable[[], None] = _nothing
        self.refusals = 0
        self._url = url
        self._on_change = on_change
        self._relief: asyncio.TimerHandle | None = None
        self._seen = self._present()

    @property
    def loaded(self) -> bool:
        """Whether the worker has said lately that it has too much to do."""
        return self._relief is not None

    def loaded_seconds(self) -> float:
        """Return for how long it still counts as loaded."""
        relief = self._relief
        return max(0.0, relief.when() - asyncio.get_running_loop().time()) if relief is not None else 0.0

    def begun(self) -> int:
        """A request has been sent; return its `trial`, see `Breaker.begun`."""
        trial = self.breaker.begun()
        self._note()
        return trial

    def ended(self, trial: int | None = None) -> None:
        """A request is over, whatever became of it."""
        self.breaker.ended(trial)
        self._note()

    def succeeded(self, trial: int | None = None) -> None:
        """An answer has begun well."""
        self.breaker.succeeded(trial)
        self._note()

    def failed(self, failure: Failure, why: str, trial: int | None = None) -> None:
        """A request has failed; `why` is for the log."""
        self.breaker.failed(failure, time.monotonic(), trial)
        self._note(why)
        if failure in CONTACT:
            self.look()

    def refused(self, seconds: float | None) -> None:
        """The worker takes no more for `seconds`; None: it does not say."""
        self.refusals += 1
        known = UNNAMED_SECONDS if seconds is None else min(seconds, LONGEST_SECONDS)
        if known <= self.loaded_seconds():
            return
        if self._relief is not None:
            self._relief.cancel()
        self._relief = asyncio.get_running_loop().call_later(known, self._relieved)
        self._note()

    def probed(self, began: float) -> None:
        """A probe that began then, monotonic seconds, has found the worker up."""
        self.breaker.probed(began)
        self._note()

    def rejoined(self) -> None:
        """The worker was down and is up again."""
        self.breaker.rejoined()
        self._note()

    def eject(self) -> None:
        """It fails far more often than its peers."""
        self.breaker.eject(time.monotonic())
        self._note()

    def close(self) -> None:
        """Leave no timer behind."""
        if self._relief is not None:
            self._relief.cancel()
            self._relief = None

    def _relieved(self) -> None:
        self._relief = None
        self._note()

    def _present(self) -> tuple[BreakerState, bool, bool]:
        return self.breaker.state, self.breaker.takes, self.loaded

    def _note(self, why: str = "") -> None:
        """Say what has changed, to the log and to the table of routes."""
        before, self._seen = self._seen, self._present()
        if before == self._seen:
            return
        state = self.breaker.state
        if state is not before[0]:
            level = logging.WARNING if state is BreakerState.OPEN else logging.INFO
            cause = f"{self.breaker.cause}: {why}" if why else self.breaker.cause
            said = fields("breaker", worker=self._url, state=str(state), cause=self.breaker.cause, why=why)
            _log.log(level, "worker %s: breaker %s (%s)", self._url, state, cause, extra=said)
        self._on_change()


def _nothing() -> None:
    return
