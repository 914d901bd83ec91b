"""One rank's event stream: its sockets, its cursor, and the view they feed.

Frames come from the subscription or a replay, the cursor says what is to be done about them, and the feed
does it to the view.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

from router.core.counts import StreamCounts
from router.core.cursor import Cursor
from router.core.steps import Apply, AskReplay, Reset, State, Step
from router.core.wire import WireError, decode_batch
from router.streams.feed import Feed
from router.streams.notes import Notes
from router.streams.reader import SEQ_BYTES, Frames, batch_in
from router.streams.replay import Replay
from router.streams.sockets import dealer
from router.streams.subscription import Subscription
from router.streams.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import zmq

    from router.core.events import Batch
    from router.core.view import View
    from router.engines.description import EventSource


_PARTS = 3


class Stream:
    """Feeds `view` from `source` until closed. `name` is for the log, and `labels` say the same in JSON.

    `rank`: the one that batches must be of, None for any. `on_restart` is called when the engine has
    restarted, or may have. `turns` are shared by the streams of a loop. `cursor` makes a Cursor.
    """

    def __init__(
        self,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        source: EventSource,
        view: View,
        *,
        name: str,
        labels: Mapping[str, object] | None = None,
        replay_seconds: float = 2.0,
        rank: int | None = None,
        counts: StreamCounts | None = None,
        on_restart: Callable[[], None] | None = None,
        turns: Turns | None = None,
        cursor: Callable[..., Cursor] = Cursor,
    ) -> None:
        self.source = source
        self.counts = counts or StreamCounts()
        self.cursor = cursor(can_replay=source.replay is not None, counts=self.counts)
        self._context = zmq_context
        self._turns = turns or Turns()
        self._notes = Notes(name, labels or {})
        self._replay_seconds = replay_seconds
        self._rank = rank
        self._on_restart = on_restart
        self._feed = Feed(
            view,
            self._turns,
            self.counts,
            self._notes,
            hold=self._hold,
            on_restart=on_restart,
            on_fault=partial(self.damaged, "a batch could not be applied"),
        )
        self._replay: Replay | None = None
        # The last that there was something to say of, and the last that the log was told of.
        self._shown = State.CONNECTING
        self._told: State | None = None
        self.cursor.unlinked(f"no connection to {source.endpoint} yet", time.monotonic())
        self._subscription = Subscription(
            zmq_context,
            source,
            self._turns,
            on_open=self._opened,
            on_frames=self._on_live,
            on_linked=self._linked,
            on_lost=self._lost,
        )
        self._subscription.open()

    @property
    def state(self) -> State:
        """What is known of the stream."""
        return self.cursor.state

    @property
    def hint(self) -> str:
        """The likely cause of what is wrong, as far as it can be told."""
        return self._notes.hint

    @property
    def last_ts(self) -> float:
        """The publisher's time of the last batch applied, seconds since the epoch, 0 before the first."""
        return self.cursor.last_ts

    def close(self) -> None:
        """Stop; nothing reaches the view any more."""
        self._feed.close()
        self._subscription.close()
        if self._replay is not None:
            self._replay.close()

    def forget(self, *, until_clear: bool = False, until_word: bool = False) -> None:
        """The view was emptied from outside; what was published before is dropped (see Cursor.forget)."""
        if until_clear and self._feed.drop_until_clear():
            return
        self._feed.clear()
        self.cursor.forget(time.monotonic(), until_clear=until_clear, until_word=until_word)

    def completed(self) -> None:
        """Take note that a request which makes the rank store blocks has completed."""
        self._carry_out(self.cursor.completed(time.monotonic()))

    def distrust(self) -> None:
        """Begin anew: the engine's answers contradict the view again and again."""
        self._carry_out(self.cursor.distrust(time.monotonic()))

    def damaged(self, why: str) -> None:
        """What the view holds is not all that the engine does, for the reason given."""
        self.cursor.damaged(why, time.monotonic())
        self._show()

    def heal(self) -> None:
        """Try to make a degraded view whole, and tell what the log had no room for; called now and then."""
        self._notes.catch_up()
        self._carry_out(self.cursor.heal(time.monotonic()))

    def _opened(self) -> None:
        self._carry_out(self.cursor.connect(time.monotonic()))

    def _linked(self, again: bool) -> None:
        self._carry_out(self.cursor.linked(time.monotonic(), again=again))
        if again and self._on_restart is not None:
            self._on_restart()

    def _lost(self, why: str) -> None:
        self.counts.cuts += 1
        self.cursor.unlinked(why, time.monotonic())
        self._show()

    def _on_live(self, frames: Frames) -> None:
        if len(frames) != _PARTS or len(frames[1]) != SEQ_BYTES:
            # Frames of two messages may have been taken for one: where they end is looked at from now on.
            self._subscription.look_for_ends()
            frames, many = batch_in(frames), len(frames)
            if not frames:
                self._count_unused(f"a message of {many} frames, not topic, 8 bytes of number and payload")
                return
        batch = self._decode(frames[2])
        if batch is None:
            return
        self._notes.unused = ""
        seq, now = int.from_bytes(frames[1], "big"), time.monotonic()
        self.counts.lag.add(time.time() - batch.ts, now)
        if self._feed.waits or not self.cursor.follows(seq, batch, now):
            self._carry_out(self.cursor.live(seq, batch, now, len(frames[2])))
            return
        # Nothing waits before it.
        self.counts.batches += 1
        self._feed.at_once(batch)

    def _on_replayed(self, seq: int, payload: bytes, topic: str | None) -> None:
        if topic is not None and not topic.startswith(self.source.topic):
            self._notes.topic_differs(topic, self.source.topic)
        batch = self._decode(payload)
        if batch is not None:
            self._carry_out(self.cursor.replayed(seq, batch, time.monotonic()))

    def _on_replay_end(self, failure: str) -> None:
        self._replay = None
        self._carry_out(self.cursor.replay_ended(time.monotonic(), failure))

    def _decode(self, payload: bytes) -> Batch | None:
        try:
            batch = decode_batch(payload)
        except WireError as error:
            self._count_unused(str(error))
            return None
        if self._rank is not None and batch.rank is not None and batch.rank != self._rank:
            self._count_unused(f"it is of rank {batch.rank}, and this is the address of rank {self._rank}")
            return None
        return batch

    def _count_unused(self, why: str) -> None:
        self._notes.batch_unused(why, self.counts.undecodable)
        self.counts.undecodable += 1

    def _carry_out(self, steps: list[Step]) -> None:
        """Do what the cursor says, events and resets in their order, in portions."""
        for step in steps:
            if type(step) is Apply:
                self.counts.batches += 1
                self._feed.add(step)
            elif type(step) is Reset:
                self._feed.add(step)
            elif type(step) is AskReplay:
                self._ask(step.start)
        self._feed.go()
        if self.cursor.state is not self._shown:
            self._show()

    def _hold(self, held: bool) -> None:
        self._subscription.hold(held)
        if self._replay is not None:
            self._replay.hold(held)

    def _show(self) -> None:
        """Tell the log of another state, once; not of a replay, which is soon over.

        What the log has no room for now is told later, if it is still so.
        """
        state = self.cursor.state
        if state is State.REPLAYING:
            self._shown = state
        elif state is self._told or self._notes.became(state, self.cursor.why):
            self._shown = self._told = state

    def _ask(self, start: int) -> None:
        if self._replay is not None:
            self._replay.close()
        endpoint = self.source.replay
        assert endpoint is not None  # noqa: S101 - the cursor asks only where a replay is offered
        self._replay = Replay(
            dealer(self._context, endpoint),
            start,
            limit_seconds=self._replay_seconds,
            turns=self._turns,
            on_batch=self._on_replayed,
            on_end=self._on_replay_end,
        )
