"""The order of one stream's batches: each once, after the one before, and what to do about one that is not.

How a batch stands to the last one applied:

    first      nothing applied yet
    next       the one expected
    gap        one or more are missing before it
    duplicate  already applied (not newer than the last batch applied)
    restart    a number already used, on a newer batch or the first one over a new connection: another
               engine process counts anew

Each replay asks from the last batch applied, not the one after it: when the engine answers with another
time for that number, or does not have it at all, the process behind the port is a new one and the view
starts anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from router.core.heard import Heard
from router.core.steps import Apply, AskReplay, Reset, Standing, State, Step

if TYPE_CHECKING:
    from router.core.awaited import Awaited
    from router.core.condition import Condition
    from router.core.counts import StreamCounts
    from router.core.events import Batch
    from router.core.holding import Holding

_NO_REPLAY = "the engine offers no replay"
# How often a history that did not come is asked for again: live batches wait meanwhile.
_TRIES = 3


class Order:
    """`position` and `last_ts` are those of the last batch applied; `restarts` of the engine seen by it.

    `position` is None before the first, and -1 when the engine has said that nothing came before number 0.
    `fresh`: the connection is a new one, perhaps to another process. `heard` tells news from history.
    """

    def __init__(
        self,
        condition: Condition,
        held: Holding,
        awaited: Awaited,
        counts: StreamCounts,
        *,
        can_replay: bool,
    ) -> None:
        self.position: int | None = None
        self.last_ts = 0.0
        self.fresh = False
        self.restarts = 0
        self.heard = Heard()
        self._condition = condition
        self._held = held
        self._awaited = awaited
        self._counts = counts
        self._can_replay = can_replay
        self._asked_at: int | None = None
        self._checking = False
        # A replay of the whole history is to come; `_whole`: it must be, or clear the cache somewhere.
        self._rebuilding = self._whole = False

    @property
    def replaying(self) -> bool:
        """Whether a replay is under way."""
        return self._condition.state is State.REPLAYING

    def replayed(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """Take a batch of the replay that was asked for."""
        if self._rebuilding:
            return self._start_anew(seq, batch, now)
        if self._checking:
            self._checking = False
            if seq == self.position and batch.ts != self.last_ts:
                return self.restart(now)
        standing = self._standing(seq, batch)
        if standing in (Standing.DUPLICATE, Standing.RESTART):
            return []
        if standing is Standing.GAP:
            self._lose(seq, "the engine does not have them")
        return self.apply(seq, batch, now)

    def is_another(self, failure: str) -> bool:
        """Whether the end of a replay shows another process: it does not even have what we applied last."""
        return self._checking and not failure

    def replay_ended(self, failure: str) -> bool:
        """Take note that a replay is over; say whether what it was asked for is not to be asked for again."""
        if self._rebuilding:
            self._condition.short_history = self._whole and not failure and self.position is not None
            if not self._whole:
                why = failure or "the engine has no history"
                self._condition.truncate(f"what was held before batch {self._next()} is not known: {why}")
        if failure and not self._whole and (self._rebuilding or self.position is None):
            self._condition.unread = _TRIES
        self._rebuilding = False
        stuck = bool(failure) or self._asked_at == self.position
        if self.position is None:
            if failure:
                self._condition.truncated = f"no history: {failure}"
            else:
                self.position, self._condition.truncated = -1, ""
        if self.position is not None and not failure:
            self.heard.begin(self.position)
        return stuck

    def release(self, now: float, *, stuck: bool, failure: str) -> list[Step]:
        """Take the held batches in their order; `stuck`: the first of them is not to be asked for again."""
        steps: list[Step] = []
        while self._held and not self.replaying:
            seq, batch = self._held.take()
            if stuck and self._standing(seq, batch) is Standing.GAP:
                self._lose(seq, failure or "the engine no longer has them")
                steps += self.apply(seq, batch, now)
            else:
                steps += self.take(seq, batch, now, True)
            stuck = False
        return steps

    def take(self, seq: int, batch: Batch, now: float, waiting: bool = False) -> list[Step]:
        """Take a live batch; `waiting`: it was held, and comes before all that still are."""
        standing = self._standing(seq, batch)
        if self._awaited.word and standing is not Standing.DUPLICATE:
            self._awaited.word = False
            if not batch.clears and not self._can_replay:
                self._condition.truncate(f"what was held before batch {seq} is not known: {_NO_REPLAY}")
            elif not batch.clears:
                steps = self.rebuild(now, "the pause left the cache alone: rebuilding from the history")
                return self._hold_for(steps, seq, batch, now, waiting)
        if standing is Standing.NEXT:
            return self.apply(seq, batch, now)
        return self._OTHERS[standing](self, seq, batch, now, waiting)

    def _drop(self, _seq: int, _batch: Batch, _now: float, _waiting: bool) -> list[Step]:
        self._counts.duplicates += 1
        return []

    def _first(self, seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        """Begin with a batch; a rank that was silent may have a history by now."""
        if self._condition.state is State.SILENT and self._can_replay:
            return self._hold_for(self.ask(now, "reading the history"), seq, batch, now, waiting)
        return self.apply(seq, batch, now)

    def _anew(self, seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        return self._hold_for(self.restart(now), seq, batch, now, waiting)

    def _fetch(self, seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        self._counts.gaps += 1
        if self._can_replay:
            why = f"batches {self._next()} to {seq - 1} did not come"
            return self._hold_for(self.ask(now, why), seq, batch, now, waiting)
        self._lose(seq, _NO_REPLAY)
        return self.apply(seq, batch, now)

    _OTHERS: ClassVar = {
        Standing.FIRST: _first,
        Standing.GAP: _fetch,
        Standing.DUPLICATE: _drop,
        Standing.RESTART: _anew,
    }

    def _hold_for(self, steps: list[Step], seq: int, batch: Batch, now: float, waiting: bool) -> list[Step]:
        """Keep a batch until the replay that `steps` asks for is over; without one, apply it now."""
        if not self.replaying:
            return steps + self.apply(seq, batch, now)
        if waiting:
            self._held.put_back(seq, batch)
        else:
            self._held.add(seq, batch, 0)
        return steps

    def _standing(self, seq: int, batch: Batch) -> Standing:
        if self.position is None:
            return Standing.FIRST
        if seq > self.position:
            return Standing.NEXT if seq == self.position + 1 else Standing.GAP
        return Standing.RESTART if self.fresh or batch.ts > self.last_ts else Standing.DUPLICATE

    def _next(self) -> int:
        return 0 if self.position is None else self.position + 1

    def apply(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """Go on to a batch, and apply it unless it is older than what emptied the view."""
        if self.position is None and seq > 0:
            self._condition.truncate(f"the history starts at batch {seq}")
        self.position, self.last_ts, self.fresh = seq, batch.ts, False
        if batch.clears:
            self._condition.make_whole()
            self._awaited.nothing()
        live = not self.replaying or self._held.has_begun(seq)
        steps: list[Step] = [Apply(batch, past=not self.heard.take(seq, live=live))]
        if self._awaited.skips(replayed=self.replaying):
            self._counts.skipped += 1
            steps = []
        if not self.replaying:
            self._condition.settle(now)
        return steps

    def ask(self, now: float, why: str) -> list[Step]:
        """Ask for what came after the last batch applied."""
        self._counts.replays += 1
        self._condition.become(State.REPLAYING, why, now)
        self._asked_at, self._rebuilding, self._whole = self.position, False, False
        self._checking = self.position not in (None, -1)
        return [AskReplay(max(0, self.position or 0))]

    def rebuild(self, now: float, why: str, *, whole: bool = False) -> list[Step]:
        """Ask for the whole history; the view is emptied only once it begins to come.

        `whole`: and only if nothing is missing at its beginning, or a clear makes that no matter.
        """
        self._counts.replays += 1
        self._condition.become(State.REPLAYING, why, now)
        self._rebuilding, self._whole, self._checking = True, whole, False
        self._asked_at = None
        return [AskReplay(0)]

    def _start_anew(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """The history that the view is rebuilt from begins with this batch, unless it must be a whole one."""
        if self._whole and seq and not batch.clears and self.position is not None:
            return []
        self._rebuilding = False
        self.position = None
        self._condition.make_whole()
        return [Reset("rebuild"), *self.apply(seq, batch, now)]

    def restart(self, now: float) -> list[Step]:
        """Another process counts anew: nothing of the old one is true any more."""
        self.restarts += 1
        self.position, self.last_ts, self.fresh = None, 0.0, False
        self.heard.anew()
        self._condition.make_whole()
        self._awaited.nothing()
        steps: list[Step] = [Reset("restart")]
        return steps + (self.ask(now, "the engine has restarted") if self._can_replay else [])

    def _lose(self, seq: int, why: str) -> None:
        self._counts.lost += 1
        self._condition.lost = f"batches {self._next()} to {seq - 1} are lost: {why}"
        self._awaited.clear_is_lost()
