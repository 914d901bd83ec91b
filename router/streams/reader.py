"""Frames from one ZMQ socket onto the event loop, without a task or a future per message.

ZMQ's descriptor is edge-triggered: once it is readable, the socket has to be read until it is empty. A
burst is read in portions; between portions the loop serves everybody else. An owner that is busy with what
it has got can hold the reader back: messages then wait in ZMQ's own bounded queue.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, TypeAlias

import zmq

if TYPE_CHECKING:
    from collections.abc import Callable

Frames: TypeAlias = list[bytes]
_log = logging.getLogger(__name__)


def receive(socket: zmq.Socket[bytes]) -> Frames:
    """Return the next message. Raises zmq.Again when there is none.

    About 3 us for three frames; `recv_multipart` asks for an option between frames, which costs as much
    again for each of them (pyzmq 27).
    """
    frame = socket.recv(zmq.NOBLOCK, copy=False)
    frames = [frame.bytes]
    while frame.more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        frames.append(frame.bytes)
    return frames


class Reader:
    """Calls `on_frames` for each message until closed; owns the socket."""

    __slots__ = ("_again", "_clock", "_closed", "_held", "_loop", "_on_frames", "_slice", "socket")

    def __init__(
        self, socket: zmq.Socket[bytes], on_frames: Callable[[Frames], None], *, slice_seconds: float = 0.001
    ) -> None:
        self.socket = socket
        self._on_frames = on_frames
        self._slice = slice_seconds
        self._loop = asyncio.get_running_loop()
        self._clock = self._loop.time
        self._held = False
        self._closed = False
        self._loop.add_reader(socket.fileno(), self._read)
        # What arrived before the descriptor was watched raises no edge any more.
        self._again: asyncio.Handle | None = self._loop.call_soon(self._read)

    def hold(self, held: bool) -> None:
        """Stop reading for now, or go on."""
        if self._held and not held and not self._closed and self._again is None:
            self._again = self._loop.call_soon(self._read)
        self._held = held

    def _read(self) -> None:
        """Read one portion."""
        if self._again is not None:
            self._again.cancel()
            self._again = None
        until = self._clock() + self._slice
        while not self._closed and not self._held:
            try:
                frames = receive(self.socket)
            except zmq.Again:
                return
            try:
                self._on_frames(frames)
            except Exception:  # noqa: BLE001 - see below
                # The socket must be read on, or it raises no edge any more and is deaf for good.
                _log.exception("a message could not be handled")
            if self._clock() > until:
                self._again = self._loop.call_soon(self._read)
                return

    def close(self) -> None:
        """Stop reading and close the socket; idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._again is not None:
            self._again.cancel()
        self._loop.remove_reader(self.socket.fileno())
        self.socket.close(linger=0)
