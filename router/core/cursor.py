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

States: `connecting` (no connection, or nothing is known yet), `replaying` (live batches are held until the
past is complete), `live`, `degraded` (batches are lost; the view may over-claim until it is next cleared or
rebuilt from a complete history), `silent` (requests complete on the rank and no batch comes).

Each replay asks from the last batch applied, not the one after it: when the engine answers with another
time for that number, or does not have it at all, the process behind the port is a new one and the view
starts anew.

A view can also be emptied from outside the stream (`forget`). What was published before that must not be
applied after it: a replay under way is given up; where the engine is known to publish AllBlocksCleared for
the same cause, what comes before that is skipped; where it may do so or not (a vLLM that was paused), the
first batch tells: without a clear in it the cache was never emptied, and the view is rebuilt from history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from router.core.condition import Condition
from router.core.counts import StreamCounts
from router.core.holding import Holding
from router.core.silence import Silence
from router.core.steps import Apply, AskReplay, Reset, Standing, State, Step

if TYPE_CHECKING:
    from router.core.events import Batch


# Batches that can be on their way while a control call is answered; an engine that has published so many
# more without the expected AllBlocksCleared will not publish it.
_MOST_ON_THEIR_WAY = 64
_SETTLED = (State.LIVE, State.DEGRADED)
_SILENT_WHY = "requests complete here and no events come"
_NO_REPLAY = "the engine offers no replay"


class Cursor:
    """One stream's state machine; `now` is in seconds everywhere. `restarts` of the engine seen by it."""

    def __init__(
        self,
        *,
        can_replay: bool,
        counts: StreamCounts | None = None,
        hold_batches: int = 10_000,
        hold_bytes: int = 64 * 2**20,
    ) -> None:
        """What waits for a replay is bounded in batches and bytes; what is over is a gap later on."""
        self.counts = counts or StreamCounts()
        self._condition = Condition()
        # -1: the engine has said that nothing came before number 0.
        self._position: int | None = None
        self.last_ts = 0.0
        self.restarts = 0
        self._can_replay = can_replay
        self._held = Holding(hold_batches, hold_bytes)
        self._silence = Silence()
        self._awaiting_clear = 0
        self._awaiting_word = False
        self._fresh = False
        self._asked_at: int | None = None
        self._checking = False
        self._rebuilding = False

    @property
    def state(self) -> State:
        """What is known of the stream."""
        return self._condition.state

    @property
    def why(self) -> str:
        """The reason for its state, "" when there is nothing to say."""
        return self._condition.why

    @property
    def since(self) -> float:
        """When it came to be so, in seconds."""
        return self._condition.since

    @property
    def last_seq(self) -> int | None:
        """The number of the last batch applied."""
        return self._position if self._position != -1 else None

    def connect(self, now: float) -> list[Step]:
        """The subscription stands: ask for the history, where the engine keeps one."""
        return self._ask(now, "reading the history") if self._can_replay else []

    def unlinked(self, why: str, now: float) -> None:
        """There is no connection, for the reason given."""
        self._condition.unlinked = why
        if self.state is not State.REPLAYING:
            self._condition.settle(now)

    def linked(self, now: float, *, again: bool) -> list[Step]:
        """There is a connection; `again`: there was one before, perhaps to another process."""
        self._condition.unlinked = ""
        if self.state is State.REPLAYING:
            return []
        if self._can_replay:
            why = "the connection was lost and is back" if again else "reading the history"
            return self._ask(now, why)
        self._fresh = again
        if self._position is not None:
            self._condition.settle(now)
        else:
            self._condition.become(State.CONNECTING, "no batch has come yet", now)
        return []

    def forget(self, now: float, *, until_clear: bool = False, until_word: bool = False) -> None:
        """The view was emptied from outside: what was published before must not be applied any more.

        `until_clear`: the engine will publish AllBlocksCleared for the same cause. `until_word`: it may,
        and if its next batch has none, its cache is what the history says.
        """
        self._condition.make_whole()
        self._awaiting_clear = _MOST_ON_THEIR_WAY if until_clear else 0
        self._awaiting_word = until_word and self._can_replay
        if self.state is State.REPLAYING:
            if until_clear:
                return  # the clear may be in the replay: what comes before it is skipped as it comes
            self._held.clear()
            self._position = None
        if self.state is not State.CONNECTING:
            self._condition.settle(now)

    def completed(self, now: float) -> list[Step]:
        """A request that makes the rank store blocks has completed; its events should have come."""
        self._silence.request()
        if self.state is State.SILENT or self.state is State.REPLAYING or not self._silence.overdue(now):
            return []
        if self._can_replay:
            return self._ask(now, "looking for events that did not come")
        return self._fall_silent(now)

    def heal(self, now: float) -> list[Step]:
        """Try to rebuild what is lost from the engine's history; called now and then."""
        if self.state is not State.DEGRADED or not self._can_replay:
            return []
        return self._rebuild(now, "rebuilding from the history")

    def distrust(self, now: float) -> list[Step]:
        """The engine's answers contradict the view again and again: begin anew."""
        if self.state is State.REPLAYING:
            return []
        self._condition.make_whole()
        steps: list[Step] = [Reset("contradicted")]
        if self._can_replay:
            return steps + self._rebuild(now, "the engine's answers contradict the view")
        self._condition.settle(now)
        return steps

    def damaged(self, why: str, now: float) -> None:
        """An event could not be applied."""
        self._condition.lost = why
        if self.state is not State.REPLAYING:
            self._condition.settle(now)

    def follows(self, seq: int, batch: Batch, now: float) -> bool:
        """Take a live batch if it is just the next one, to be applied; if not, say so, and `live` takes it.

        The common case, without a step. About 0.5 us.
        """
        condition = self._condition
        if self._position != seq - 1 or condition.state not in _SETTLED or batch.clears:
            return False
        if condition.unlinked or self._awaiting_clear or self._awaiting_word:
            return False
        self._position, self.last_ts, self._fresh = seq, batch.ts, False
        self._silence.batch(now)
        return True

    def live(self, seq: int, batch: Batch, now: float, size: int = 0) -> list[Step]:
        """Take a live batch of `size` bytes."""
        self._silence.batch(now)
        self._condition.unlinked = ""
        if self.state is State.REPLAYING:
            self._held.add(seq, batch, size)
            return []
        return self._take(seq, batch, now)

    def replayed(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """Take a batch of the replay that was asked for."""
        if self.state is not State.REPLAYING:
            return []
        if self._rebuilding:
            return self._start_anew(seq, batch, now)
        if self._checking:
            self._checking = False
            if seq == self._position and batch.ts != self.last_ts:
                return self._restart(now)
        standing = self._standing(seq, batch)
        if standing in (Standing.DUPLICATE, Standing.RESTART):
            return []
        self._silence.batch(now)
        if standing is Standing.GAP:
            self._lose(seq, "the engine does not have them")
        return self._apply(seq, batch, now)

    def replay_ended(self, now: float, failure: str = "") -> list[Step]:
        """The replay is complete, or failed for the reason given: go on with what was held."""
        if self.state is not State.REPLAYING:
            return []
        if self._checking and not failure:
            # The engine does not even have the batch that we applied last: it never sent it.
            return self._restart(now)
        self._rebuilding = False
        stuck = bool(failure) or self._asked_at == self._position
        if self._position is None:
            if failure:
                self._condition.truncated = f"no history: {failure}"
            else:
                self._position, self._condition.truncated = -1, ""
        if not self._held and self._silence.overdue(now):
            return self._fall_silent(now)
        self._condition.settle(now)
        return self._release(now, stuck=stuck, failure=failure)

    def _release(self, now: float, *, stuck: bool, failure: str) -> list[Step]:
        """Take the held batches in their order; `stuck`: the first of them is not to be asked for again."""
        steps: list[Step] = []
        while self._held and self.state is not State.REPLAYING:
            seq, batch = self._held.take()
            if stuck and self._standing(seq, batch) is Standing.GAP:
                self._lose(seq, failure or "the engine no longer has them")
                steps += self._apply(seq, batch, now)
            else:
                steps += self._take(seq, batch, now, True)
            stuck = False
        return steps

    def _take(self, seq: int, batch: Batch, now: float, waiting: bool = False) -> list[Step]:
        standing = self._standing(seq, batch)
        if self._awaiting_word and standing is not Standing.DUPLICATE:
            self._awaiting_word = False
            if not batch.clears:
                steps = self._rebuild(now, "the pause left the cache alone: rebuilding from the history")
                return self._hold_for(steps, seq, batch, now, waiting)
        if standing is Standing.NEXT:
            return self._apply(seq, batch, now)
        return self._OTHERS[standing](self, seq, batch, now, waiting)

    def _drop(self, _seq: int, _batch: Batch, _now: float, _waiting: bool) -> list[Step]:
        self.counts.duplicates += 1
        return []

    def _first(self, seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        """Begin with a batch; a rank that was silent may have a history by now."""
        if self.state is State.SILENT and self._can_replay:
            return self._hold_for(self._ask(now, "reading the history"), seq, batch, now, waiting)
        return self._apply(seq, batch, now)

    def _anew(self, seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        return self._hold_for(self._restart(now), seq, batch, now, waiting)

    def _fetch(self, seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        self.counts.gaps += 1
        if self._can_replay:
            why = f"batches {self._next()} to {seq - 1} did not come"
            return self._hold_for(self._ask(now, why), seq, batch, now, waiting)
        self._lose(seq, _NO_REPLAY)
        return self._apply(seq, batch, now)

    _OTHERS: ClassVar = {
        Standing.FIRST: _first,
        Standing.GAP: _fetch,
        Standing.DUPLICATE: _drop,
        Standing.RESTART: _anew,
    }

    def _hold_for(self, steps: list[Step], seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        """Keep a batch until the replay that `steps` asks for is over; without one, apply it now."""
        if self.state is not State.REPLAYING:
            return steps + self._apply(seq, batch, now)
        if waiting:
            self._held.put_back(seq, batch)
        else:
            self._held.add(seq, batch, 0)
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
            self._condition.truncate(f"the history starts at batch {seq}")
        self._position, self.last_ts, self._fresh = seq, batch.ts, False
        if batch.clears:
            self._condition.make_whole()
            self._awaiting_clear = 0
            self._awaiting_word = False
        if self._awaiting_clear:
            self.counts.skipped += 1
            # Of a replay any number can come before the clear.
            self._awaiting_clear -= self.state is not State.REPLAYING
            steps: list[Step] = []
        else:
            steps = [Apply(batch)]
        if self.state is not State.REPLAYING:
            self._condition.settle(now)
        return steps

    def _ask(self, now: float, why: str) -> list[Step]:
        self.counts.replays += 1
        self._condition.become(State.REPLAYING, why, now)
        self._asked_at = self._position
        self._checking = self.last_seq is not None
        return [AskReplay(self.last_seq or 0)]

    def _rebuild(self, now: float, why: str) -> list[Step]:
        """Ask for the whole history; the view is emptied only once it begins to come."""
        self.counts.replays += 1
        self._condition.become(State.REPLAYING, why, now)
        self._rebuilding, self._checking = True, False
        return [AskReplay(0)]

    def _start_anew(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """The history that the view is rebuilt from begins with this batch."""
        self._rebuilding = False
        self._position = None
        self._condition.make_whole()
        return [Reset("rebuild"), *self._apply(seq, batch, now)]

    def _restart(self, now: float) -> list[Step]:
        """Another process counts anew: nothing of the old one is true any more."""
        self.restarts += 1
        self._position, self.last_ts, self._fresh = None, 0.0, False
        self._condition.make_whole()
        self._awaiting_clear = 0
        self._awaiting_word = False
        steps: list[Step] = [Reset("restart")]
        return steps + (self._ask(now, "the engine has restarted") if self._can_replay else [])

    def _fall_silent(self, now: float) -> list[Step]:
        """Claims of a rank that is not heard are worth nothing: begin anew with what comes next."""
        self._condition.become(State.SILENT, _SILENT_WHY, now)
        self._position = None
        self._condition.make_whole()
        return [Reset("silent")]

    def _lose(self, seq: int, why: str) -> None:
        self.counts.lost += 1
        self._condition.lost = f"batches {self._next()} to {seq - 1} are lost: {why}"
        self._awaiting_clear = 0
