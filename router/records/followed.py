"""One rank in a re-run: what its stream brought goes through `Cursor` and `View` once more."""

from __future__ import annotations

from collections import deque
from functools import singledispatchmethod
from typing import TYPE_CHECKING, TypeAlias

from router.core.cursor import Cursor
from router.core.steps import Apply, Reset, Step
from router.records import entries
from router.records.revived import batch_of

if TYPE_CHECKING:
    from router.core.rank import Rank
    from router.records.differences import Differences

# What is one rank's own matter.
OfRank: TypeAlias = (
    entries.Opened
    | entries.Live
    | entries.Replayed
    | entries.ReplayEnded
    | entries.Connected
    | entries.Linked
    | entries.Unlinked
    | entries.Applied
    | entries.Reset
    | entries.Forgot
    | entries.Completed
    | entries.Healed
    | entries.Distrusted
    | entries.Damaged
    | entries.EngineSaid
    | entries.EngineForgotten
    | entries.EngineAsked
    | entries.PeersSaid
)


class Followed:
    """`number` is the rank's in its session; `peak` the most blocks that its view has held, by a tier.

    Between its cursor and its view batches and resets wait for their entries.
    """

    def __init__(self, number: int, rank: Rank, differences: Differences) -> None:
        self.number = number
        self.rank = rank
        self.peak = self.batches = 0
        self._differences = differences
        self._cursor: Cursor | None = None
        self._pending: deque[Apply | Reset] = deque()

    @property
    def name(self) -> str:
        """What it is called in differences."""
        return named(self.rank)

    def row(self) -> entries.Row:
        """Return what its view and load are now."""
        view, load, cursor = self.rank.view, self.rank.load, self._cursor

        return entries.Row(
            self.number,
            "" if cursor is None else str(cursor.state),
            None if cursor is None else cursor.last_seq,
            view.blocks(),
            len(view.predicted),
            view.orphans.blocks,
            dict(view.resets),
            load.inflight_tokens,
            load.active_requests,
        )

    @singledispatchmethod
    def take(self, entry: entries.Entry) -> None:
        """Do what an entry about this rank says. Raises TypeError for any other."""
        raise TypeError(entry)

    @take.register
    def _opened(self, entry: entries.Opened) -> None:
        self._cursor = Cursor(can_replay=entry.can_replay)
        self._pending.clear()

    @take.register
    def _live(self, entry: entries.Live) -> None:
        cursor = self._stream()
        batch = batch_of(entry.batch)
        self.batches += 1
        if not entry.at_once:
            self._wait(cursor.live(entry.seq, batch, entry.now, entry.size))
        elif cursor.follows(entry.seq, batch, entry.now):
            self._apply(Apply(batch))
        else:
            self._differences.differ(f"batch {entry.seq} of {self.name}", "the next one", "another one")
            self._wait(cursor.live(entry.seq, batch, entry.now, entry.size))

    @take.register
    def _replayed(self, entry: entries.Replayed) -> None:
        cursor = self._stream()
        self.batches += 1
        self._wait(cursor.replayed(entry.seq, batch_of(entry.batch), entry.now))

    @take.register
    def _replay_ended(self, entry: entries.ReplayEnded) -> None:
        cursor = self._stream()
        self._wait(cursor.replay_ended(entry.now, entry.failure))

    @take.register
    def _connected(self, entry: entries.Connected) -> None:
        cursor = self._stream()
        self._wait(cursor.connect(entry.now))

    @take.register
    def _linked(self, entry: entries.Linked) -> None:
        cursor = self._stream()
        self._wait(cursor.linked(entry.now, again=entry.again))

    @take.register
    def _unlinked(self, entry: entries.Unlinked) -> None:
        self._stream().unlinked(entry.why, entry.now)

    @take.register
    def _forgot(self, entry: entries.Forgot) -> None:
        cursor = self._stream()
        self._pending.clear()
        cursor.forget(entry.now, until_clear=entry.until_clear, until_word=entry.until_word)

    @take.register
    def _completed(self, entry: entries.Completed) -> None:
        cursor = self._stream()
        self._wait(cursor.completed(entry.now))

    @take.register
    def _healed(self, entry: entries.Healed) -> None:
        cursor = self._stream()
        self._wait(cursor.heal(entry.now))

    @take.register
    def _distrusted(self, entry: entries.Distrusted) -> None:
        cursor = self._stream()
        self._wait(cursor.distrust(entry.now))

    @take.register
    def _damaged(self, entry: entries.Damaged) -> None:
        self._stream().damaged(entry.why, entry.now)

    def _stream(self) -> Cursor:
        assert self._cursor is not None, "it has no stream"  # noqa: S101 - told by `Rerun.take`
        return self._cursor

    def _wait(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Apply | Reset):
                self._pending.append(step)

    @take.register
    def _applied(self, entry: entries.Applied) -> None:
        """Apply the batch of this time; what waited before it has been dropped (Stream.forget)."""
        pending = self._pending
        while pending:
            step = pending.popleft()
            if isinstance(step, Apply) and step.batch.ts == entry.ts:
                self._apply(step)
                return
        self._differences.differ(f"batch of {entry.ts} of {self.name}", "applied", "not there")

    def _apply(self, step: Apply) -> None:
        try:
            self.rank.view.apply(step.batch, past=step.past)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return  # as it did then: a reset for this cause comes next
        self.peak = max(self.peak, *self.rank.view.blocks().values(), 0)

    @take.register
    def _reset(self, entry: entries.Reset) -> None:
        pending = self._pending
        if pending and isinstance(pending[0], Reset) and pending[0].cause == entry.cause:
            pending.popleft()
        self.rank.view.reset(entry.cause)

    @take.register
    def _engine_said(self, entry: entries.EngineSaid) -> None:
        load = self.rank.load
        load.usage, load.capacity_tokens = entry.usage, entry.capacity
        load.hear_engine(entry.tokens, entry.requests)

    @take.register
    def _engine_forgotten(self, _: entries.EngineForgotten) -> None:
        self.rank.load.forget_engine()

    @take.register
    def _engine_asked(self, _: entries.EngineAsked) -> None:
        self.rank.load.listen()

    @take.register
    def _peers_said(self, entry: entries.PeersSaid) -> None:
        self.rank.load.hear(entry.tokens, entry.requests)


def named(rank: Rank) -> str:
    """Return what a rank is called."""
    return f"{rank.worker} rank {rank.rank}"
