"""One replay: ask an engine for its history from a sequence number on (KV_EVENTS.md 4).

A DEALER sends `["", start]`; answers are `["", topic, seq, payload]`, on older engines `["", seq, payload]`,
and the end is a seq of eight ff bytes (older vLLM: an empty one).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import zmq

from router.streams.reader import SEQ_BYTES, Frames, Reader

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.streams.turns import Turns

_END = b"\xff" * SEQ_BYTES
_MOST_LIMITS = 30


class Replay:
    """Calls `on_batch(seq, payload, topic)` for each answer and `on_end(failure)` once, "" when complete.

    `topic` is None where the engine's answers have none. Fails when `limit_seconds` pass without an answer,
    and when it has not ended after thirty times as long.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        start: int,
        *,
        limit_seconds: float,
        turns: Turns,
        on_batch: Callable[[int, bytes, str | None], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._on_batch = on_batch
        self._on_end = on_end
        self._limit = limit_seconds
        self._loop = asyncio.get_running_loop()
        socket.send_multipart([b"", start.to_bytes(SEQ_BYTES, "big")], zmq.NOBLOCK)
        self._heard = self._loop.time()
        self._last_call = self._heard + _MOST_LIMITS * limit_seconds
        self._timer = self._loop.call_later(limit_seconds, self._tick)
        self._reader = Reader(socket, self._frames, turns=turns)

    def hold(self, held: bool) -> None:
        """Stop taking answers for now, or go on; the wait does not count."""
        self._reader.hold(held)
        if not held:
            self._heard = self._loop.time()

    def close(self) -> None:
        """Give up without a word to anybody."""
        self._timer.cancel()
        self._reader.close()

    def _frames(self, frames: Frames) -> None:
        self._heard = self._loop.time()
        body = frames[1:] if frames and not frames[0] else frames
        if len(body) < 2:  # noqa: PLR2004 - seq and payload
            return
        seq, payload = body[-2], body[-1]
        if seq == _END or not seq:
            self._end("")
        elif len(seq) == SEQ_BYTES:
            topic = body[-3].decode(errors="replace") if len(body) > 2 else None  # noqa: PLR2004 - and a topic
            self._on_batch(int.from_bytes(seq, "big"), payload, topic)

    def _tick(self) -> None:
        """Fail after a silence; the timer is moved only when it fires, not with each answer."""
        now = self._loop.time()
        left = min(self._heard + self._limit, self._last_call) - now
        if now >= self._last_call:
            self._end("the replay did not end")
        elif left <= 0:
            self._end(f"no answer to a replay within {self._limit:g} s")
        else:
            self._timer = self._loop.call_later(left, self._tick)

    def _end(self, failure: str) -> None:
        self.close()
        self._on_end(failure)
