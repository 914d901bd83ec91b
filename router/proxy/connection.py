"""One keep-alive HTTP/1.1 connection to a worker, as an asyncio protocol over httptools.

It carries one request and its answer at a time. Whatever cannot be right (bytes nobody asked for,
something that is not HTTP, an end in the middle) ends the connection: it is never used again. What is
read ahead of a slow reader is bounded by pausing the socket, so that its own worker waits and nobody
else.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

from router.errors import UpstreamFailed, UpstreamTimeout
from router.proxy.headers import ends_with_connection
from router.proxy.keepalive import give_up_unacknowledged, keep_alive
from router.proxy.patience import Patience
from router.proxy.response import Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.proxy.limits import Limits

# Below this size copying the body behind the head costs less than a second buffer in the transport.
JOINED_BYTES = 32 * 1024

# Status codes of answers proper; those from 100 that are lower announce one, others are none (RFC 9110, 15).
INFORMATIONAL, FINAL, LAST = 100, 200, 599


class Connection(asyncio.Protocol):
    """`on_idle` is called when it can take another request, `on_lost` when it never will again."""

    __slots__ = (
        "_asked_at",
        "_between",
        "_busy",
        "_idle_since",
        "_limits",
        "_loop",
        "_on_idle",
        "_on_lost",
        "_parser",
        "_paused",
        "_response",
        "_reusable",
        "_transport",
        "_unread",
    )

    _response: Response  # the latest; still under way while `_busy`
    _transport: asyncio.Transport

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        on_idle: Callable[[Connection], None],
        on_lost: Callable[[Connection], None],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._parser = httptools.HttpResponseParser(self)
        self._busy = False
        self._between = False  # nothing has been read since a chunk has ended
        self._reusable = False
        self._paused = False
        self._unread = 0
        self._asked_at = 0.0
        self._idle_since = 0.0

    def idle_seconds(self) -> float:
        """Return how long it has been idle."""
        return self._loop.time() - self._idle_since

    def is_closing(self) -> bool:
        """Return True once the socket is closed or on its way there."""
        return self._transport.is_closing()

    def exchange(self, head: bytes, body: bytes, limits: Limits, *, bodyless: bool = False) -> Response:
        """Write one request and return its answer, not begun yet; `bodyless` = an answer to HEAD.

        Of `limits` those hold that are on the time which this answer may take.
        """
        response = Response(self, self._loop, bodyless=bodyless)
        self._response = response
        self._busy = True
        self._between = False
        self._unread = 0
        self._asked_at = self._loop.time()
        if limits.first_byte_seconds or limits.idle_seconds:
            response.patience = Patience(self._loop, limits, self._expire)
        if len(body) <= JOINED_BYTES:
            self._transport.write(head + body)
        else:
            self._transport.writelines((head, body))
        return response

    def drained(self) -> None:
        """Take note that the reader has everything that had come: let the worker go on."""
        self._unread = 0
        if self._paused:
            self._paused = False
            self._transport.resume_reading()

    def fail(self, failure: UpstreamFailed) -> None:
        """Close the socket at once; the answer under way, if any, ends with `failure`."""
        if self._busy:
            self._fail(failure)
        else:
            self.abort()

    def abort(self) -> None:
        """Close the socket at once; the answer under way, if any, gets nothing more."""
        self._busy = False
        self._transport.abort()

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport; asyncio and uvloop have set TCP_NODELAY on it."""
        self._transport = cast("asyncio.Transport", transport)
        socket = transport.get_extra_info("socket")
        keep_alive(socket)
        give_up_unacknowledged(socket)

    def data_received(self, data: bytes) -> None:
        """Feed the parser and wake the reader once, whatever number of pieces came of it."""
        if self._between and (chunk := self._response.chunk) is not None and chunk(data):
            return  # for the parser it has never been
        if not self._busy:
            self.abort()
            return
        response = self._response
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._garbled(error)
            return
        if self._between:  # unless the beginning of the next one is there, which the parser does not tell
            self._between = data.endswith(b"\r\n")
        if response.patience is not None and response.pieces:
            response.patience.arrived()
        if response.complete:
            self._finish(reusable=self._reusable)
        elif not response.pieces:
            self._count_bare(len(data))
        else:
            response.bare_bytes = 0
            self._hand_over(response, len(data))

    def _hand_over(self, response: Response, size: int) -> None:
        """Have what has come read, or hold the worker back."""
        if response.pump is not None:
            response.pump()
            if response.patience is not None and response.pump is not None:
                response.patience.wait()
        elif response.waiter is not None:
            response.advance()
        else:
            self._hold_back(size)

    def eof_received(self) -> None:
        """Take the end of the stream for the end of a body that nothing else delimits, else a cut."""
        self._ended()
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the pool, and the reader if there is one."""
        if exc is None:
            self._ended()
        else:
            self._lost(UpstreamFailed("the connection to the worker broke"), exc)
        self._on_lost(self)
        del self._parser  # it holds this object's methods: break the circle

    # the parser's side

    def on_message_begin(self) -> None:
        """Refuse a second message after the answer: nobody asked for it."""
        if self._response.complete:
            raise httptools.HttpParserError("more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Collect a header of the head; trailers, which come after it, are dropped."""
        response = self._response
        if not response.begun:
            name = name.lower()
            if name == b"transfer-encoding" and value.lower() != b"chunked":
                # What else it says goes with this connection only, so the client could not read the body.
                raise httptools.HttpParserError("a coding that was not asked for")
            response.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Begin the answer, unless this is a 1xx, which only announces it."""
        response = self._response
        response.status = status = self._parser.get_status_code()
        if not INFORMATIONAL <= status <= LAST:
            raise httptools.HttpParserError("no such status")
        if status >= FINAL:
            response.begun = True
            response.complete = response.bodyless

    def on_body(self, piece: bytes) -> None:
        """Keep a piece for the reader."""
        self._response.pieces.append(piece)

    def on_chunk_header(self) -> None:
        """Take note that a chunk has begun."""
        self._between = False

    def on_chunk_complete(self) -> None:
        """Take note that it has ended."""
        self._between = True

    def on_message_complete(self) -> None:
        """Complete the answer, or forget a 1xx."""
        response = self._response
        if response.begun:
            response.complete = True
            self._reusable = self._parser.should_keep_alive()
        else:
            response.headers.clear()

    # what follows from both

    def _finish(self, *, reusable: bool) -> None:
        response = self._response
        self._busy = False
        if response.bodyless:
            response.pieces.clear()  # an answer to HEAD that has a body all the same
            reusable = False  # and the parser, which does not know of HEAD, waits for that body
        # A request that is not fully written yet would run into the next one.
        if reusable and not self._transport.get_write_buffer_size():
            self._idle_since = self._loop.time()
            self._on_idle(self)
        else:
            self._transport.abort()
        response.advance()

    def _hold_back(self, size: int) -> None:
        self._unread += size
        if self._unread > self._limits.buffer_bytes and not self._paused:
            self._paused = True
            self._transport.pause_reading()

    def _count_bare(self, size: int) -> None:
        """Bound what is no body: heads, 1xx, chunk extensions, trailers."""
        response = self._response
        response.bare_bytes += size
        if response.bare_bytes > self._limits.head_bytes:
            what = "head of the worker's answer" if not response.begun else "worker's framing of its answer"
            self._fail(UpstreamFailed(f"the {what} is too large"))
        elif response.begun and response.waiter is not None:
            response.advance()

    def _garbled(self, error: Exception) -> None:
        if self._response.complete:
            self._finish(reusable=False)
        else:
            self._fail(UpstreamFailed("the worker's answer is not HTTP"), error)

    def _ended(self) -> None:
        if not self._busy:
            self._on_lost(self)
        elif self._response.begun and ends_with_connection(self._response.headers):
            self._response.complete = True
            self._finish(reusable=False)
        else:
            self._lost(UpstreamFailed("the worker closed the connection before its answer was complete"))

    def _expire(self, reason: str) -> None:
        self._fail(UpstreamTimeout(reason))

    def _lost(self, failure: UpstreamFailed, cause: Exception | None = None) -> None:
        response = self._response if self._busy else None
        if response is not None:
            unanswered = not response.begun and not response.bare_bytes
            soon = self._loop.time() - self._asked_at < self._limits.stale_seconds
            failure.stale = bool(self._idle_since) and unanswered and soon
            self._fail(failure, cause)

    def _fail(self, failure: UpstreamFailed, cause: Exception | None = None) -> None:
        if self._busy:
            failure.__cause__ = cause
            self._response.failure = failure
            self.abort()
            self._response.advance()
