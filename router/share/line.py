"""Calls and answers between the parent and one process, both ways over one pair of sockets.

A frame is its length (u32, big-endian) and a msgpack array: the call's number, whether it is a call, an
answer or a failure, what is called, and a body. Calls are taken up in the order in which they come. The end
of the stream is the end of the other process, however it died.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Literal

import msgspec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Answer = Callable[[str, msgspec.Raw], Awaitable[Any]]

# In seconds: how long processes may take to follow what another has done, after which the parent ends them,
# and to show what they see.
FOLLOW_SECONDS, SHOW_SECONDS = 10.0, 1.0
_LENGTH = 4
_CALL: Literal[0] = 0
_ANSWER: Literal[1] = 1
_FAILURE: Literal[2] = 2
_log = logging.getLogger(__name__)
encode = msgspec.msgpack.encode


class LineClosed(Exception):
    """The process at the other end is gone."""


class CallFailed(Exception):
    """The other end could not do what it was asked to."""


class _Frame(msgspec.Struct, array_like=True):
    number: int
    kind: Literal[0, 1, 2]
    what: str
    body: msgspec.Raw


_FRAMES = msgspec.msgpack.Decoder(_Frame)


class Line:
    """One end. `answer` is given what is called and its body, and returns what msgpack can encode."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: Answer) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = answer
        self._number = 0
        self._open: dict[int, asyncio.Future[msgspec.Raw]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def run(self) -> None:
        """Take calls and answers until the other end is gone."""
        try:
            while True:
                length = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
                self._take(_FRAMES.decode(await self._reader.readexactly(length)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            self.close()

    def close(self) -> None:
        """End the line; whoever waits for an answer gets LineClosed."""
        self._closed = True
        self._writer.close()
        waiting, self._open = self._open, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(LineClosed())
        for task in self._tasks:
            task.cancel()

    def call(self, what: str, body: Any = None) -> asyncio.Future[msgspec.Raw]:
        """Send a call now; the future is its answer, or raises LineClosed or CallFailed."""
        future: asyncio.Future[msgspec.Raw] = asyncio.get_running_loop().create_future()
        if self._closed:
            future.set_exception(LineClosed())
            return future
        self._number += 1
        self._open[self._number] = future
        self._send(self._number, _CALL, what, body)
        return future

    async def ask(self, what: str, body: Any = None, *, seconds: float) -> msgspec.Raw:
        """Call and wait. Raises LineClosed, CallFailed, TimeoutError."""
        async with asyncio.timeout(seconds):
            return await self.call(what, body)

    def _send(self, number: int, kind: Literal[0, 1, 2], what: str, body: Any) -> None:
        raw = body if isinstance(body, msgspec.Raw) else msgspec.Raw(encode(body))
        frame = encode(_Frame(number, kind, what, raw))
        if not self._closed:
            self._writer.write(len(frame).to_bytes(_LENGTH, "big") + frame)

    def _take(self, frame: _Frame) -> None:
        if frame.kind == _CALL:
            task = asyncio.ensure_future(self._serve(frame))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return
        future = self._open.pop(frame.number, None)
        if future is None or future.done():
            return
        if frame.kind == _ANSWER:
            future.set_result(frame.body)
        else:
            future.set_exception(CallFailed(frame.what))

    async def _serve(self, frame: _Frame) -> None:
        try:
            body = await self._answer(frame.what, frame.body)
        except Exception:  # noqa: BLE001 - whatever went wrong here, the other end must not wait for it
            _log.exception("%s could not be done", frame.what)
            self._send(frame.number, _FAILURE, frame.what, None)
        else:
            self._send(frame.number, _ANSWER, frame.what, body)


def forget(answer: asyncio.Future[msgspec.Raw]) -> None:
    """Let a call that nobody waits for end as it may: that it failed is no news."""
    if not answer.cancelled():
        answer.exception()
