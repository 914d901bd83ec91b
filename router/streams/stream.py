"""One rank's event stream: its sockets, its cursor, and the view they feed.

Batches wait in `_pending` between cursor and view, and are applied in portions (`turns`); while any
wait, or the view is busy with a large one, nothing more is read, so that a burst waits in ZMQ's bounded queue
and not in the router's memory.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from typing import TYPE_CHECKING

import zmq

from router.core.counts import StreamCounts
from router.core.cursor import Cursor
from router.core.events import Batch
from router.core.steps import Apply, AskReplay, Reset, State, Step
from router.core.wire import WireError, decode_batch
from router.observe.logs import fields
from router.streams.reader import SEQ_BYTES, Frames, Reader, receive_batch
from router.streams.replay import Replay
from router.streams.sockets import dealer, subscriber
from router.streams.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from router.core.view import View
    from router.engines.description import EventSource


_log = logging.getLogger(__name__)
_PARTS = 3
# ZMQ frees an address some time after its socket is closed.
_OPEN_AGAIN_SECONDS = 0.2
_BUSY_SECONDS = 0.002


class Stream:
    """Feeds `view` from `source` until closed. `name` is for the log, and `labels` say the same in JSON.

    `rank`: the one that batches must be of, None for any. `on_restart` is called when the engine has
    restarted, or may have. `turns` are shared by the streams of a loop. `cursor` makes a Cursor. `hint`: the
    likely cause if nothing comes, as far as it can be told.
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
        self.hint = ""
        self._context = zmq_context
        self._turns = turns or Turns()
        self._view = view
        self._name = name
        self._labels = labels or {}
        self._replay_seconds = replay_seconds
        self._rank = rank
        self._on_restart = on_restart
        self._pending: deque[Batch | Reset] = deque()
        self._loop = asyncio.get_running_loop()
        self._is_draining = False
        self._closed = False
        self._replay: Replay | None = None
        self._reader: Reader | None = None
        self._monitor: Reader | None = None
        self._was_linked = False
        self._shown = State.CONNECTING
        self._again: asyncio.TimerHandle | None = None
        self.cursor.unlinked(f"no connection to {source.endpoint} yet", time.monotonic())
        self._open()

    @property
    def state(self) -> State:
        """What is known of the stream."""
        return self.cursor.state

    @property
    def last_ts(self) -> float:
        """The publisher's time of the last batch applied, seconds since the epoch, 0 before the first."""
        return self.cursor.last_ts

    def close(self) -> None:
        """Stop; nothing reaches the view any more."""
        self._pending.clear()
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        for part in (self._monitor, self._reader, self._replay):
            if part is not None:
                part.close()

    def forget(self, *, until_clear: bool = False, until_word: bool = False) -> None:
        """The view was emptied from outside; what was published before is dropped (see Cursor.forget)."""
        if until_clear and self._drop_until_clear():
            return
        self._pending.clear()
        self.cursor.forget(time.monotonic(), until_clear=until_clear, until_word=until_word)

    def completed(self) -> None:
        """Take note that a request which makes the rank store blocks has completed."""
        self._carry_out(self.cursor.completed(time.monotonic()))

    def distrust(self) -> None:
        """Begin anew: the engine's answers contradict the view again and again."""
        self._carry_out(self.cursor.distrust(time.monotonic()))

    def heal(self) -> None:
        """Try to make a degraded view whole; called now and then."""
        self._carry_out(self.cursor.heal(time.monotonic()))

    def _drop_until_clear(self) -> bool:
        """Drop what waits before the last clear that waits; say whether there is one."""
        clears = [at for at, step in enumerate(self._pending) if isinstance(step, Batch) and step.clears]
        for _ in range(clears[-1] if clears else 0):
            self._pending.popleft()
        return bool(clears)

    def _open(self) -> None:
        """Subscribe, now or, while the address cannot be used, as soon as it can."""
        source = self.source
        try:
            socket, monitor = subscriber(self._context, source.endpoint, source.topic, bind=source.bind)
        except zmq.ZMQError as error:
            self.cursor.unlinked(f"{source.endpoint}: {error.strerror}", time.monotonic())
            self._again = self._loop.call_later(_OPEN_AGAIN_SECONDS, self._open)
            return
        self._monitor = Reader(monitor, self._on_connection, turns=self._turns)
        self._reader = Reader(socket, self._on_live, turns=self._turns, receive=receive_batch)
        self._carry_out(self.cursor.connect(time.monotonic()))

    def _on_connection(self, frames: Frames) -> None:
        """The socket has a connection, or has lost it."""
        now = time.monotonic()
        if int.from_bytes(frames[0][:2], "little") == zmq.Event.HANDSHAKE_SUCCEEDED:
            again, self._was_linked = self._was_linked, True
            self._carry_out(self.cursor.linked(now, again=again))
            if again and self._on_restart is not None:
                self._on_restart()
        elif self._was_linked:
            self.cursor.unlinked(f"the connection to {self.source.endpoint} was lost", now)
            self._show()

    def _on_live(self, frames: Frames) -> None:
        if len(frames) != _PARTS or len(frames[1]) != SEQ_BYTES:
            self.counts.undecodable += 1
            return
        batch = self._decode(frames[2])
        if batch is None:
            return
        seq, now = int.from_bytes(frames[1], "big"), time.monotonic()
        self.counts.lag.add(time.time() - batch.ts, now)
        if self._is_draining or not self.cursor.follows(seq, batch, now):
            self._carry_out(self.cursor.live(seq, batch, now, len(frames[2])))
            return
        # Nothing waits before it.
        self.counts.batches += 1
        self._apply(batch)
        if self._view.busy:
            self._drain()

    def _on_replayed(self, seq: int, payload: bytes, topic: str | None) -> None:
        if topic is not None and not topic.startswith(self.source.topic):
            self.hint = f"the engine's topic is {topic!r:.100}, subscribed is {self.source.topic!r:.100}"
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
            self._count_undecodable(str(error))
            return None
        if self._rank is not None and batch.rank is not None and batch.rank != self._rank:
            self._count_undecodable(f"it is of rank {batch.rank}")
            return None
        return batch

    def _count_undecodable(self, why: str) -> None:
        """Say the first and then each thousandth: a broken publisher must not fill the log."""
        if self.counts.undecodable % 1000 == 0:
            _log.warning("%s: a batch was not used: %s", self._name, why)
        self.counts.undecodable += 1

    def _carry_out(self, steps: list[Step]) -> None:
        """Do what the cursor says, events and resets in their order, in portions."""
        for step in steps:
            if type(step) is Apply:
                self.counts.batches += 1
                self._pending.append(step.batch)
            elif type(step) is Reset:
                self._pending.append(step)
            elif type(step) is AskReplay:
                self._ask(step.start)
        if not self._is_draining and (self._pending or self._view.busy):
            self._drain()
        if self.cursor.state is not self._shown:
            self._show()

    def _drain(self) -> None:
        """Apply what waits, as far as this turn of the loop allows."""
        self._is_draining = False
        if self._closed:
            return
        pending, view = self._pending, self._view
        until = self._turns.end()
        while pending and not view.busy and time.perf_counter() <= until:
            self._apply(pending.popleft())
        if view.busy:
            self._is_draining = True
            self._loop.call_later(_BUSY_SECONDS, self._drain)
        elif pending:
            self._is_draining = True
            self._turns.later(self._drain)
        for part in (self._reader, self._replay):
            if part is not None:
                part.hold(self._is_draining)

    def _apply(self, step: Batch | Reset) -> None:
        try:
            if isinstance(step, Reset):
                self._reset(step.cause)
            else:
                if step.clears:
                    self.counts.clears += 1
                    self._tell_reset("all_blocks_cleared")
                self._view.apply(step)
        except Exception:  # noqa: BLE001 - see below
            # Whatever an engine sends, the stream goes on; what the batch has said is not known any more.
            _log.exception("%s: a batch could not be applied", self._name)
            self._view.reset("fault")
            self.cursor.damaged("a batch could not be applied", time.monotonic())
            self._show()

    def _tell_reset(self, cause: str) -> None:
        said = fields("view_reset", **self._labels, cause=cause)
        _log.info("%s: view reset (%s)", self._name, cause, extra=said)

    def _reset(self, cause: str) -> None:
        self._tell_reset(cause)
        self._view.reset(cause)
        if cause == "restart" and self._on_restart is not None:
            self._on_restart()

    def _show(self) -> None:
        """Tell the log of another state, but not of every replay that is over in a moment."""
        state, before = self.cursor.state, self._shown
        self._shown = state
        if state is State.REPLAYING or (before is State.REPLAYING and state is State.LIVE):
            return
        bad = state in {State.DEGRADED, State.SILENT}
        why = f" ({self.cursor.why})" if self.cursor.why else ""
        level = logging.WARNING if bad else logging.INFO
        said = fields("view_state", **self._labels, state=str(state), why=self.cursor.why)
        _log.log(level, "%s: view %s%s", self._name, state, why, extra=said)

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
