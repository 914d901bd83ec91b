"""Whether a worker is worth sending to, by what became of the requests it got: a circuit breaker.

Pure: time comes in as an argument, in seconds. A breaker never refuses a request itself; whoever routes keeps
away from a worker whose breaker does not take any, as long as another one does.

    closed     takes requests
    open       takes none; it ends with a probe that finds the worker up, begun no earlier than `until`
    half open  takes one request at a time, on trial

    closed     contact lost                              -> open, until the next probe
    closed     failures in a row, their share, outlier   -> open, for `seconds`
    open       probe, after lost contact alone           -> closed
    open       probe, for any other cause                -> half open
    half open  the answer to the trial begins            -> closed
    half open  the trial fails                           -> open, twice as long

Lost contact (no connection, or one that broke) can mean that the process is gone, so that one is enough, and
a look is enough to know better; it counts in the row like any other failure. What ends while the breaker is
open was sent before, and says nothing new; nor does, while it is half open, any request but the trial.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from enum import StrEnum


class BreakerState(StrEnum):
    """See the table above."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Failure(StrEnum):
    """How a request failed: no connection, lost before or after its answer began, too slow, a bad status."""

    CONNECT = "connect"
    RESET = "reset"
    CUT = "cut"
    TIMEOUT = "timeout"
    STATUS = "status"


CONTACT = frozenset({Failure.CONNECT, Failure.RESET, Failure.CUT})
# The window of shares: so many turns, which the owner makes once a second.
WINDOW_TURNS = 10
# Requests in the window below which a share says nothing.
FEWEST_REQUESTS = 20
# The longest a breaker stays open, in seconds.
LONGEST_SECONDS = 60.0


@dataclass(slots=True)
class BreakerRules:
    """When a breaker opens; 0 is never. `seconds`: for how long at first. May change while they hold.

    `failures` in a row; `share` of the requests in the window that failed; `outlier`: how many times the
    share of failures of the other workers is too much. `statuses` of answers that count as failures.
    """

    failures: int = 5
    share: float = 0.5
    outlier: float = 5.0
    seconds: float = 5.0
    statuses: frozenset[int] = frozenset({500, 502, 504})


class Breaker:
    """One worker's. `good` is added to directly, once per answer that has begun well.

    `troubled` says whether its owner must be told of more than that: of each request that begins, answers or
    ends; False as long as all is well. `row`: failures in a row; `failures` in all, by kind; `changes`: how
    often which state was entered by which cause.
    """

    __slots__ = (
        "_rules",
        "_seconds",
        "_trial",
        "_trials",
        "_window",
        "bad",
        "cause",
        "changes",
        "failures",
        "good",
        "row",
        "state",
        "troubled",
        "until",
    )

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self._rules = rules or BreakerRules()
        self._seconds = self._rules.seconds
        self._trial = False
        self._trials = 0
        self._window: deque[tuple[int, int]] = deque(maxlen=WINDOW_TURNS - 1)
        self.state = BreakerState.CLOSED
        self.cause = ""
        self.until = 0.0
        self.good = self.bad = self.row = 0
        self.troubled = False
        self.failures: Counter[str] = Counter()
        self.changes: Counter[tuple[str, str]] = Counter()

    @property
    def takes(self) -> bool:
        """Whether a request should be sent now."""
        return self.state is BreakerState.CLOSED or (self.state is BreakerState.HALF_OPEN and not self._trial)

    def counts(self) -> tuple[int, int]:
        """Return how many requests of the window were answered well, and how many failed."""
        good, bad = self.good, self.bad
        for answered, failed in self._window:
            good += answered
            bad += failed
        return good, bad

    def begun(self) -> int:
        """A request has been sent. Return the number of its trial, 0 if it is none.

        The other methods take that number as `trial`; None, where it is not known, counts as the trial's.
        """
        if self.state is not BreakerState.HALF_OPEN or self._trial:
            return 0
        self._trial = True
        self._trials += 1
        return self._trials

    def ended(self, trial: int | None = None) -> None:
        """A request is over, whatever became of it: without a word on the worker another one may try."""
        if self._decides(trial):
            self._trial = False

    def succeeded(self, trial: int | None = None) -> None:
        """An answer has begun well."""
        if self.state is BreakerState.HALF_OPEN and not self._decides(trial):
            return
        self.row = 0
        if self.state is BreakerState.HALF_OPEN:
            self._seconds = self._rules.seconds
            self._become(BreakerState.CLOSED, "trial")
        self.troubled = self.state is not BreakerState.CLOSED

    def failed(self, failure: Failure, now: float, trial: int | None = None) -> None:
        """A request has failed; it may have `ended` already."""
        self.failures[failure] += 1
        if self.state is BreakerState.OPEN:
            return
        if self.state is BreakerState.HALF_OPEN and not self._decides(trial):
            return
        self.bad += 1
        self.row += 1
        self.troubled = True
        if self.state is BreakerState.HALF_OPEN:
            self._seconds = min(2 * self._seconds, max(LONGEST_SECONDS, self._rules.seconds))
            self._open("trial", now + self._seconds)
        elif self._rules.failures and self.row >= self._rules.failures:
            self._open("failures", now + self._seconds)
        elif self._exceeds_share():
            self._open("share", now + self._seconds)
        elif failure in CONTACT:
            self._open(failure, now)

    def eject(self, now: float) -> None:
        """It fails far more often than its peers do."""
        if self.state is BreakerState.CLOSED:
            self._open("outlier", now + self._seconds)

    def probed(self, began: float) -> None:
        """A probe that began then has found the worker up."""
        if self.state is not BreakerState.OPEN or began < self.until:
            return
        if self.cause in CONTACT:
            self._become(BreakerState.CLOSED, "probe")
        else:
            self._become(BreakerState.HALF_OPEN, "probe")

    def rejoined(self) -> None:
        """It was down for all to see and is up again: nothing is left to wait for but the trial."""
        if self.state is BreakerState.OPEN:
            self.probed(self.until)

    def turn(self) -> None:
        """Let the window go on by a step."""
        self._window.append((self.good, self.bad))
        self.good = self.bad = 0

    def _decides(self, trial: int | None) -> bool:
        """Whether it is the latest trial, which has a number of its own."""
        return trial is None or trial == self._trials > 0

    def _exceeds_share(self) -> bool:
        good, bad = self.counts()
        return 0 < self._rules.share <= bad / (good + bad) and good + bad >= FEWEST_REQUESTS

    def _open(self, cause: str, until: float) -> None:
        self.until = until
        self.troubled = True
        if cause not in CONTACT:
            self._window.clear()
            self.good = self.bad = 0
        self._become(BreakerState.OPEN, cause)

    def _become(self, state: BreakerState, cause: str) -> None:
        self.state, self.cause, self._trial = state, cause, False
        # A trial of another time decides nothing.
        self._trials += 1
        self.changes[state, cause] += 1
