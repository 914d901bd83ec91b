"""Frames from one ZMQ socket onto the event loop, without a task or a future per message.

ZMQ's descriptor is edge-triggered: once it is readable, the socket has to be read until it is empty. A
burst is read in portions (`turns`); between portions the loop serves everybody else. An owner that is busy
with what it has got can hold the reader back: messages then wait in ZMQ's own bounded queue.
"""

from __future__ import annotations

import asyncio
import logging
from time import perf_counter
from typing import TYPE_CHECKING, TypeAlias

import zmq

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.streams.turns import Turns

Frames: TypeAlias = list[bytes]
SEQ_BYTES = 8
_PARTS = 3
_NOBLOCK, _POLLIN = int(zmq.NOBLOCK), int(zmq.POLLIN)
# How MessagePack begins an array.
_ARRAYS = frozenset(bytes([first]) for first in (*range(0x90, 0xA0), 0xDC, 0xDD))
_log = logging.getLogger(__name__)


def receive(socket: zmq.Socket[bytes]) -> Frames:
    """Return the next message. Raises zmq.Again when there is none. About 2 us (pyzmq 27)."""
    frame = socket.recv(zmq.NOBLOCK, copy=False)
    frames = [frame.bytes]
    while frame.more:
        frame = socket.recv(zmq.NOBLOCK, copy=False)
        frames.append(frame.bytes)
    return frames


def batch_in(frames: Frames) -> Frames:
    """Return topic, seq and payload of a message that may have further frames; nothing when it has none.

    The frames may be those that were left of one message, and all of the next: both have as many too many.
    """
    if len(frames) == _PARTS:
        return frames if len(frames[1]) == SEQ_BYTES else []
    for start in (0, (len(frames) - _PARTS) // 2):
        found = frames[start : start + _PARTS]
        if len(found) == _PARTS and _is_batch(found):
            return found
    return []


def _is_batch(frames: Frames) -> bool:
    return len(frames[1]) == SEQ_BYTES and frames[2][:1] in _ARRAYS


def receive_batch(socket: zmq.Socket[bytes]) -> Frames:
    """Return the next message, which should be topic, seq and payload. Raises zmq.Again when there is none.

    About 0.5 us: nothing tells where a message ends, which costs more than the frames do (pyzmq 27). A
    message of another shape shows by a seq or a payload that is none, or by those of the one behind it.
    """
    recv = socket.recv
    frames = [recv(_NOBLOCK)]
    try:
        frames.append(recv(_NOBLOCK))
        frames.append(recv(_NOBLOCK))
    except zmq.Again:
        return frames
    if not _is_batch(frames):
        while socket.getsockopt(zmq.RCVMORE):
            frames.append(recv(_NOBLOCK))
    return frames


class Reader:
    """Calls `on_frames` for each message until closed; owns the socket. `receive` may be changed."""

    __slots__ = ("_closed", "_held", "_is_waiting", "_loop", "_on_frames", "_turns", "receive", "socket")

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        on_frames: Callable[[Frames], None],
        *,
        turns: Turns,
        receive: Callable[[zmq.Socket[bytes]], Frames] = receive,
    ) -> None:
        self.socket = socket
        self._on_frames = on_frames
        self.receive = receive
        self._turns = turns
        self._held = False
        self._closed = False
        self._is_waiting = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(socket.fileno(), self._read)
        # What arrived before the descriptor was watched raises no edge any more.
        self._wait()

    def hold(self, held: bool) -> None:
        """Stop reading for now, or go on."""
        if self._held and not held and not self._closed:
            self._wait()
        self._held = held

    def _wait(self) -> None:
        if not self._is_waiting:
            self._is_waiting = True
            self._turns.later(self._go_on)

    def _go_on(self) -> None:
        self._is_waiting = False
        self._portion()

    def _read(self) -> None:
        """There is something to read, or has been."""
        if self._is_waiting:
            return
        if self._turns.is_over():
            self._wait()
        else:
            self._portion()

    def _portion(self) -> None:
        """Read while it is this reader's turn."""
        until, is_first = self._turns.end(), True
        while not self._closed and not self._held:
            try:
                frames = self.receive(self.socket)
            except zmq.Again:
                return
            self._handle(frames)
            if self._closed:
                return
            # Mostly there is one message only; to ask costs half of what zmq.Again does.
            if is_first and not int(self.socket.getsockopt(zmq.EVENTS)) & _POLLIN:
                return
            is_first = False
            if perf_counter() > until:
                self._wait()
                return

    def _handle(self, frames: Frames) -> None:
        try:
            self._on_frames(frames)
        except Exception:  # noqa: BLE001 - see below
            # The socket must be read on, or it raises no edge any more and is deaf for good.
            _log.exception("a message could not be handled")

    def close(self) -> None:
        """Stop reading and close the socket; idempotent."""
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self.socket.fileno())
        self.socket.close(linger=0)
