"""One stream's SUB socket: opened as soon as its address can be used, and what becomes of its connection."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import zmq

from router.streams.reader import Frames, Reader, receive, receive_batch
from router.streams.sockets import subscriber

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.engines.description import EventSource
    from router.streams.turns import Turns

# ZMQ frees an address some time after its socket is closed.
_OPEN_AGAIN_SECONDS = 0.2


class Subscription:
    """Calls `on_frames` for each message, once `open` has been called and until `close` is.

    `on_open`: the address can be used. `on_linked`: there is a connection, with True if there was one before.
    `on_lost`: there is none, for the reason given.
    """

    def __init__(
        self,
        zmq_context: zmq.Context[zmq.Socket[bytes]],
        source: EventSource,
        turns: Turns,
        *,
        on_open: Callable[[], object],
        on_frames: Callable[[Frames], None],
        on_linked: Callable[[bool], object],
        on_lost: Callable[[str], object],
    ) -> None:
        self._context = zmq_context
        self._source = source
        self._turns = turns
        self._on_open = on_open
        self._on_frames = on_frames
        self._on_linked = on_linked
        self._on_lost = on_lost
        self._was_linked = False
        self._reader: Reader | None = None
        self._monitor: Reader | None = None
        self._again: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Subscribe, now or, while the address cannot be used, as soon as it can."""
        source = self._source
        try:
            socket, monitor = subscriber(self._context, source.endpoint, source.topic, bind=source.bind)
        except zmq.ZMQError as error:
            self._on_lost(f"{source.endpoint}: {error.strerror}")
            loop = asyncio.get_running_loop()
            self._again = loop.call_later(_OPEN_AGAIN_SECONDS, self.open)
            return
        self._monitor = Reader(monitor, self._on_connection, turns=self._turns)
        self._reader = Reader(socket, self._on_frames, turns=self._turns, receive=receive_batch)
        self._on_open()

    def hold(self, held: bool) -> None:
        """Stop reading for now, or go on."""
        if self._reader is not None:
            self._reader.hold(held)

    def look_for_ends(self) -> None:
        """Look where messages end from now on: they are of another shape than they should be."""
        if self._reader is not None:
            self._reader.receive = receive

    def close(self) -> None:
        """Leave no socket and no timer behind."""
        if self._again is not None:
            self._again.cancel()
        for reader in (self._monitor, self._reader):
            if reader is not None:
                reader.close()

    def _on_connection(self, frames: Frames) -> None:
        """The socket has a connection, or has lost it."""
        if int.from_bytes(frames[0][:2], "little") == zmq.Event.HANDSHAKE_SUCCEEDED:
            again, self._was_linked = self._was_linked, True
            self._on_linked(again)
        elif self._was_linked:
            self._on_lost(f"the connection to {self._source.endpoint} was lost")
