"""One rank's event stream: its sockets, its cursor, and the view they feed."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

import zmq

from router.core.cursor import Apply, AskReplay, Cursor, Reset, State, Step
from router.core.wire import Batch, WireError, decode_batch
from router.streams.reader import Frames, Reader
from router.streams.replay import SEQ_BYTES, Replay
from router.streams.sockets import dealer, monitor, subscriber

if TYPE_CHECKING:
    from router.core.view import View
    from router.engines.description import EventSource

_log = logging.getLogger(__name__)
_PARTS = 3
# ZMQ frees an address some time after its socket is closed.
_OPEN_AGAIN_SECONDS = 0.2


class Stream:
    """Feeds `view` from `source` until closed. `name` is for the log.

    `batches`, `undecodable`: counts. `last_ts`: the publisher's time of the last batch, seconds since the
    epoch, 0 before the first.
    """

    def __init__(
        self,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        source: EventSource,
        view: View,
        *,
        name: str,
        replay_seconds: float = 2.0,
    ) -> None:
        self.source = source
        self.cursor = Cursor(can_replay=source.replay is not None)
        self.batches = 0
        self.undecodable = 0
        self._context = zmq_context
        self._view = view
        self._name = name
        self._replay_seconds = replay_seconds
        self._replay: Replay | None = None
        self._reader: Reader | None = None
        self._monitor: Reader | None = None
        self._connected = False
        self._again: asyncio.TimerHandle | None = None
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
        for reader in (self._monitor, self._reader):
            if reader is not None:
                reader.close()
        if self._replay is not None:
            self._replay.close()
        if self._again is not None:
            self._again.cancel()

    def _open(self) -> None:
        """Subscribe, now or, while the address cannot be used, as soon as it can."""
        source = self.source
        try:
            socket = subscriber(self._context, source.endpoint, source.topic, bind=source.bind)
        except zmq.ZMQError as error:
            self.cursor.unreachable(f"{source.endpoint}: {error.strerror}", time.monotonic())
            self._again = asyncio.get_running_loop().call_later(_OPEN_AGAIN_SECONDS, self._open)
            return
        self._monitor = Reader(monitor(socket), self._on_connection)
        self._reader = Reader(socket, self._on_live)
        self._carry_out(self.cursor.connect(time.monotonic()))

    def forget(self, *, until_clear: bool = False) -> None:
        """The view was emptied from outside; `until_clear`: the engine will say so too, later."""
        self.cursor.forget(time.monotonic(), until_clear=until_clear)

    def completed(self, now: float) -> None:
        """Take note that a request which makes the rank store blocks has completed."""
        self._carry_out(self.cursor.completed(now))

    def _on_connection(self, _: Frames) -> None:
        """The socket has a connection, the first or another one."""
        if self._connected:
            self._carry_out(self.cursor.reconnected(time.monotonic()))
        self._connected = True

    def _on_live(self, frames: Frames) -> None:
        if len(frames) != _PARTS or len(frames[1]) != SEQ_BYTES:
            self.undecodable += 1
            return
        batch = self._decode(frames[2])
        if batch is not None:
            seq = int.from_bytes(frames[1], "big")
            self._carry_out(self.cursor.live(seq, batch, time.monotonic(), len(frames[2])))

    def _on_replayed(self, seq: int, payload: bytes) -> None:
        batch = self._decode(payload)
        if batch is not None:
            self._carry_out(self.cursor.replayed(seq, batch, time.monotonic()))

    def _on_replay_end(self, failure: str) -> None:
        self._replay = None
        self._carry_out(self.cursor.replay_ended(time.monotonic(), failure))

    def _decode(self, payload: bytes) -> Batch | None:
        try:
            return decode_batch(payload)
        except WireError as error:
            self.undecodable += 1
            _log.warning("%s: a batch could not be decoded: %s", self._name, error)
            return None

    def _carry_out(self, steps: list[Step]) -> None:
        for step in steps:
            if type(step) is Apply:
                self.batches += 1
                self._view.apply(step.batch)
            elif type(step) is Reset:
                _log.info("%s: view reset (%s)", self._name, step.cause)
                self._view.reset(step.cause)
            elif type(step) is AskReplay:
                self._ask(step.start)

    def _ask(self, start: int) -> None:
        if self._replay is not None:
            self._replay.close()
        endpoint = self.source.replay
        assert endpoint is not None  # noqa: S101 - the cursor asks only where a replay is offered
        self._replay = Replay(
            dealer(self._context, endpoint),
            start,
            limit_seconds=self._replay_seconds,
            on_batch=self._on_replayed,
            on_end=self._on_replay_end,
        )
