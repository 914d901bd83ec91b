"""The place of one stream: which batch comes next, and what to do about one that is not it.

Events of one stream apply in sequence order, once (KV_EVENTS.md 1 and 4). The cursor does no I/O: it is
told of live batches, replayed batches and the ends of replays, and answers with steps for its owner to
carry out in order: apply a batch, reset the view, ask for a replay.

How a batch stands to the cursor:

    first      nothing applied yet
    next       the one expected
    gap        one or more are missing before it
    duplicate  already applied (not newer than the last batch applied)
    restart    a number already used, on a newer batch or the first one over a new connection: another
               engine process counts anew

States: `connecting` (nothing is known), `replaying` (live batches are held until the past is complete),
`live`, `degraded` (batches are lost for good; the view may over-claim until it is next cleared), `silent`
(requests complete on the rank and no batch comes).

Each replay asks from the last batch applied, not the one after it: when the engine answers with another
time for that number, or does not have it at all, the process behind the port is a new one and the view
starts anew.

A view can also be emptied from outside the stream. What was published before that must not be applied
after it: a replay under way is given up, and where the engine is known to publish AllBlocksCleared for the
same cause, what comes before that is skipped (`forget`).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from router.core.wire import Batch


class State(StrEnum):
    """What is known of a stream."""

    CONNECTING = "connecting"
    REPLAYING = "replaying"
    LIVE = "live"
    DEGRADED = "degraded"
    SILENT = "silent"


class Standing(StrEnum):
    """How a batch stands to the cursor."""

    FIRST = "first"
    NEXT = "next"
    GAP = "gap"
    DUPLICATE = "duplicate"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply the batch to the view."""

    batch: Batch


@dataclass(frozen=True, slots=True)
class Reset:
    """Forget the view; `cause` names why."""

    cause: str


@dataclass(frozen=True, slots=True)
class AskReplay:
    """Ask the engine for every batch from `start` on."""

    start: int


Step: TypeAlias = Apply | Reset | AskReplay

# Batches that can be on their way while a control call is answered; an engine that has published so many
# more without the expected AllBlocksCleared will not publish it.
_MOST_ON_THEIR_WAY = 64
# A rank is silent when so many requests that store blocks have completed, and so long after its last batch.
_UNHEARD_REQUESTS, _UNHEARD_SECONDS = 3, 10.0
_UNHEARD_WHY = "requests complete here and no events come"


class Cursor:
    """One stream's state machine; `now` is in seconds everywhere."""

    def __init__(self, *, can_replay: bool, hold_batches: int = 10_000, hold_bytes: int = 64 * 2**20) -> None:
        """What waits for a replay is bounded in batches and bytes; what is over is a gap later on."""
        self.state = State.CONNECTING
        self.why = "no batch has come yet"
        self.since = 0.0
        # -1: the engine has said that nothing came before number 0.
        self._position: int | None = None
        self.last_ts = 0.0
        self.gaps = 0
        self.replays = 0
        self.duplicates = 0
        self._can_replay = can_replay
        self.clears = 0
        self.skipped = 0
        self._held: deque[tuple[int, Batch]] = deque()
        self._held_bytes = 0
        self._hold_batches = hold_batches
        self._hold_bytes = hold_bytes
        self._awaiting_clear = 0
        self._fresh = False
        self._unheard = 0
        self._heard = 0.0
        self._asked_at: int | None = None
        self._checking = False
        self._lost = ""
        self._truncated = ""

    @property
    def last_seq(self) -> int | None:
        """The number of the last batch applied."""
        return self._position if self._position != -1 else None

    def connect(self, now: float) -> list[Step]:
        """The subscription stands: ask for the history, where the engine keeps one."""
        return self._ask(now, "reading the history") if self._can_replay else []

    def unreachable(self, why: str, now: float) -> None:
        """No subscription could be made yet."""
        self._become(State.CONNECTING, why, now)

    def reconnected(self, now: float) -> list[Step]:
        """The connection was lost and is back, perhaps to another process."""
        if self.state is State.REPLAYING:
            return []
        if self._can_replay:
            return self._ask(now, "the connection was lost and is back")
        self._fresh = True
        return []

    def forget(self, now: float, *, until_clear: bool = False) -> None:
        """The view was emptied from outside: what was published before must not be applied any more.

        `until_clear`: the engine will publish AllBlocksCleared for the same cause.
        """
        self._lost = self._truncated = ""
        self._awaiting_clear = _MOST_ON_THEIR_WAY if until_clear else 0
        self._held.clear()
        self._held_bytes = 0
        if self.state is State.REPLAYING:
            self._position = None
        if self.state is not State.CONNECTING:
            self._settle(now)

    def completed(self, now: float) -> list[Step]:
        """A request that makes the rank store blocks has completed; its events should have come."""
        self._unheard += 1
        if self._unheard < _UNHEARD_REQUESTS or now - self._heard < _UNHEARD_SECONDS:
            return []
        if self.state not in {State.LIVE, State.DEGRADED, State.CONNECTING}:
            return []
        self._become(State.SILENT, _UNHEARD_WHY, now)
        return self._ask(now, "looking for events that did not come") if self._can_replay else []

    def live(self, seq: int, batch: Batch, now: float, size: int = 0) -> list[Step]:
        """Take a live batch of `size` bytes. Common case (the next one): one comparison, one list."""
        self._unheard, self._heard = 0, now
        if self.state is State.REPLAYING:
            self._hold(seq, batch, size)
            return []
        return self._take(seq, batch, now)

    def replayed(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """Take a batch of the replay that was asked for."""
        if self.state is not State.REPLAYING:
            return []
        if self._checking:
            self._checking = False
            if seq == self._position and batch.ts != self.last_ts:
                return self._restart(now)
        standing = self._standing(seq, batch)
        if standing in (Standing.DUPLICATE, Standing.RESTART):
            return []
        self._unheard, self._heard = 0, now
        if standing is Standing.GAP:
            self._lose(seq)
        return self._apply(seq, batch, now)

    def replay_ended(self, now: float, failure: str = "") -> list[Step]:
        """The replay is complete, or failed for the reason given: go on with what was held."""
        if self.state is not State.REPLAYING:
            return []
        if self._checking and not failure:
            # The engine does not even have the batch that we applied last: it never sent it.
            return self._restart(now)
        stuck = bool(failure) or self._asked_at == self._position
        if self._position is None:
            if failure:
                self._truncated = f"no history: {failure}"
            else:
                self._position = -1
        self._settle(now)
        return self._release(now, stuck=stuck, failure=failure)

    def _release(self, now: float, *, stuck: bool, failure: str) -> list[Step]:
        """Take the held batches in their order; `stuck`: the first of them is not to be asked for again."""
        steps: list[Step] = []
        while self._held and self.state is not State.REPLAYING:
            seq, batch = self._held.popleft()
            if stuck and self._standing(seq, batch) is Standing.GAP:
                self._lose(seq, failure or "the engine no longer has them")
                steps += self._apply(seq, batch, now)
            else:
                steps += self._take(seq, batch, now, waiting=True)
            stuck = False
        if not self._held:
            self._held_bytes = 0
        return steps

    def _hold(self, seq: int, batch: Batch, size: int) -> None:
        if len(self._held) < self._hold_batches and self._held_bytes + size <= self._hold_bytes:
            self._held.append((seq, batch))
            self._held_bytes += size

    def _take(self, seq: int, batch: Batch, now: float, *, waiting: bool = False) -> list[Step]:
        standing = self._standing(seq, batch)
        if standing is Standing.NEXT:
            return self._apply(seq, batch, now)
        if standing is Standing.DUPLICATE:
            self.duplicates += 1
            return []
        if standing is Standing.FIRST:
            return self._apply(seq, batch, now)
        if standing is Standing.RESTART:
            return self._hold_for(self._restart(now), seq, batch, now, waiting=waiting)
        self.gaps += 1
        if self._can_replay:
            why = f"batches {self._next()} to {seq - 1} did not come"
            return self._hold_for(self._ask(now, why), seq, batch, now, waiting=waiting)
        self._lose(seq, "the engine offers no replay")
        return self._apply(seq, batch, now)

    def _hold_for(
        self, steps: list[Step], seq: int, batch: Batch, now: float, *, waiting: bool
    ) -> list[Step]:
        """Keep a batch until the replay that `steps` asks for is over; without one, apply it now."""
        if self.state is not State.REPLAYING:
            return steps + self._apply(seq, batch, now)
        if waiting:
            self._held.appendleft((seq, batch))
        else:
            self._held.append((seq, batch))
        return steps

    def _standing(self, seq: int, batch: Batch) -> Standing:
        if self._position is None:
            return Standing.FIRST
        if seq > self._position:
            return Standing.NEXT if seq == self._position + 1 else Standing.GAP
        return Standing.RESTART if self._fresh or batch.ts > self.last_ts else Standing.DUPLICATE

    def _next(self) -> int:
        return 0 if self._position is None else self._position + 1

    def _apply(self, seq: int, batch: Batch, now: float) -> list[Step]:
        if self._position is None and seq > 0:
            self._truncated = "; ".join(filter(None, (f"the history starts at batch {seq}", self._truncated)))
        self._position, self.last_ts, self._fresh = seq, batch.ts, False
        if batch.clears:
            self.clears += 1
            self._lost = self._truncated = ""
            self._awaiting_clear = 0
        if self.state is not State.REPLAYING:
            self._settle(now)
        if self._awaiting_clear:
            self._awaiting_clear -= 1
            self.skipped += 1
            return []
        return [Apply(batch)]

    def _ask(self, now: float, why: str) -> list[Step]:
        self.replays += 1
        self._become(State.REPLAYING, why, now)
        self._asked_at = self._position
        self._checking = self.last_seq is not None
        return [AskReplay(self.last_seq or 0)]

    def _restart(self, now: float) -> list[Step]:
        """Another process counts anew: nothing of the old one is true any more."""
        self._position, self.last_ts = None, 0.0
        self._lost = self._truncated = ""
        self._awaiting_clear = 0
        steps: list[Step] = [Reset("restart")]
        return steps + (self._ask(now, "the engine has restarted") if self._can_replay else [])

    def _lose(self, seq: int, why: str = "the engine skipped them") -> None:
        self._lost = f"batches {self._next()} to {seq - 1} are lost: {why}"
        self._awaiting_clear = 0

    def _settle(self, now: float) -> None:
        """Be live, degraded or silent, by what has been lost since the view was last empty, or never came."""
        if self._unheard >= _UNHEARD_REQUESTS:
            self._become(State.SILENT, _UNHEARD_WHY, now)
        elif self._lost:
            self._become(State.DEGRADED, self._lost, now)
        else:
            self._become(State.LIVE, self._truncated, now)

    def _become(self, state: State, why: str, now: float) -> None:
        if state is not self.state or why != self.why:
            self.state, self.why, self.since = state, why, now
