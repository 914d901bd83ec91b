"""One stream: which batch comes next, what is known of it, and what is to be done.

Events of one stream apply in sequence order, once (KV_EVENTS.md 1 and 4; `order`). The cursor does no I/O:
it is told of live batches, replayed batches and the ends of replays, and answers with steps for its owner to
carry out in order: apply a batch, reset the view, ask for a replay.

States: `connecting` (no connection, or nothing is known yet), `replaying` (live batches are held until the
past is complete), `live`, `degraded` (batches are lost; the view may over-claim until it is next cleared or
rebuilt from a complete history), `silent` (requests complete on the rank and no batch comes).

A view can also be emptied from outside the stream (`forget`). What was published before that must not be
applied after it: a replay under way is given up; where the engine is known to publish AllBlocksCleared for
the same cause, what comes before that is skipped; where it may do so or not (a vLLM that was paused), the
first batch tells: without a clear in it the cache was never emptied, and the view is rebuilt from history.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.awaited import Awaited
from router.core.condition import Condition
from router.core.counts import StreamCounts
from router.core.holding import Holding
from router.core.order import Order
from router.core.silence import Silence
from router.core.steps import Reset, State, Step

if TYPE_CHECKING:
    from router.core.events import Batch

_SETTLED = (State.LIVE, State.DEGRADED)
_SILENT_WHY = "requests complete here and no events come"


class Cursor:
    """One stream's state machine; `now` is in seconds everywhere."""

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
        self._can_replay = can_replay
        self._condition = Condition()
        self._held = Holding(hold_batches, hold_bytes)
        self._awaited = Awaited()
        self._silence = Silence()
        self._order = Order(self._condition, self._held, self._awaited, self.counts, can_replay=can_replay)

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
        position = self._order.position
        return position if position != -1 else None

    @property
    def last_ts(self) -> float:
        """The publisher's time of it, seconds since the epoch; 0 before the first."""
        return self._order.last_ts

    @property
    def restarts(self) -> int:
        """How often the stream has shown another engine process."""
        return self._order.restarts

    def connect(self, now: float) -> list[Step]:
        """The subscription stands: ask for the history, where the engine keeps one."""
        return self._order.ask(now, "reading the history") if self._can_replay else []

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
            return self._order.ask(now, why)
        self._order.fresh = again
        if self._order.position is not None:
            self._condition.settle(now)
        else:
            self._condition.become(State.CONNECTING, "no batch has come yet", now)
        return []

    def forget(self, now: float, *, until_clear: bool = False, until_word: bool = False) -> None:
        """The view was emptied from outside: what was published before must not be applied any more.

        `until_clear`: the engine will publish AllBlocksCleared for the same cause. `until_word`: it may,
        and if its next batch has none, its cache is what the history says, or not known without a replay.
        """
        self._condition.make_whole()
        self._awaited.begin(clear=until_clear, word=until_word)
        if self.state is State.REPLAYING:
            if until_clear:
                return  # the clear may be in the replay: what comes before it is skipped as it comes
            self._held.clear()
            self._order.position = None
        if self.state is not State.CONNECTING:
            self._condition.settle(now)

    def completed(self, now: float) -> list[Step]:
        """A request that makes the rank store blocks has completed; its events should have come."""
        self._silence.request()
        if self.state is State.SILENT or self.state is State.REPLAYING or not self._silence.overdue(now):
            return []
        if self._can_replay:
            return self._order.ask(now, "looking for events that did not come")
        return self._fall_silent(now)

    @property
    def to_heal(self) -> bool:
        """Whether the engine's history may have what the view lacks."""
        condition = self._condition
        if not self._can_replay or condition.short_history:
            return False
        return self.state is State.DEGRADED or (self.state is State.LIVE and condition.unread > 0)

    def heal(self, now: float) -> list[Step]:
        """Try to rebuild what is lost from the engine's history, if that is complete; called now and then.

        From one that begins later more would be forgotten than is lost. One that did not come when it was
        asked for is asked for again a few times.
        """
        if not self.to_heal:
            return []
        self._condition.unread -= self._condition.unread > 0
        return self._order.rebuild(now, "rebuilding from the history", whole=True)

    def distrust(self, now: float) -> list[Step]:
        """The engine's answers contradict the view again and again: begin anew."""
        if self.state is State.REPLAYING:
            return []
        self._condition.make_whole()
        steps: list[Step] = [Reset("contradicted")]
        if self._can_replay:
            return steps + self._order.rebuild(now, "the engine's answers contradict the view")
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
        order, condition = self._order, self._condition
        if order.position != seq - 1 or condition.state not in _SETTLED or batch.clears:
            return False
        if condition.unlinked or self._awaited.anything:
            return False
        order.position, order.last_ts, order.fresh = seq, batch.ts, False
        order.heard.to = seq
        self._silence.batch(now)
        return True

    def live(self, seq: int, batch: Batch, now: float, size: int = 0) -> list[Step]:
        """Take a live batch of `size` bytes."""
        self._silence.batch(now)
        self._condition.unlinked = ""
        if self.state is State.REPLAYING:
            self._held.add(seq, batch, size)
            return []
        return self._order.take(seq, batch, now)

    def replayed(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """Take a batch of the replay that was asked for."""
        if self.state is not State.REPLAYING:
            return []
        steps = self._order.replayed(seq, batch, now)
        if steps:
            self._silence.batch(now)
        return steps

    def replay_ended(self, now: float, failure: str = "") -> list[Step]:
        """The replay is complete, or failed for the reason given: go on with what was held."""
        if self.state is not State.REPLAYING:
            return []
        if self._order.is_another(failure):
            return self._order.restart(now)
        stuck = self._order.replay_ended(failure)
        if not self._held and self._silence.overdue(now):
            return self._fall_silent(now)
        self._condition.settle(now)
        return self._order.release(now, stuck=stuck, failure=failure)

    def _fall_silent(self, now: float) -> list[Step]:
        """Claims of a rank that is not heard are worth nothing: begin anew with what comes next."""
        self._condition.become(State.SILENT, _SILENT_WHY, now)
        self._order.position = None
        self._condition.make_whole()
        return [Reset("silent")]
