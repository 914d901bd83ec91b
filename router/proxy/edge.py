"""The client's side of the data plane: uvicorn's httptools protocol, with costs taken out and bounds put in.

The head of an answer can wait for the body (`hold`, `joining.JoiningTransport`), and the request under way
can leave a callback for a lost client (`on_lost`) instead of a Task that awaits `receive()`: `relay` and
`ClientWatch` use both when they find them. Whoever connects can make the router hold no more, and wait no
longer, than `limits` say. Nothing that a client sends is logged.

- Upgrades are not offered, so they are ignored (RFC 9110, 7.8): the request is read as if it had not asked.
- Trailers are dropped: they are no headers of a request that is on its way already.
- The end of a client's stream means that the client has gone, also when it has closed its sending half only.
  TCP shows the two alike, and which one it is shows only after an answer has been written: a router that took
  every end for a half-close would let engines work for nobody. (RFC 9112, 9.6 has clients close in full.)
- After something that is no request nothing of that connection is parsed any more. What has been asked before
  is still answered; then the connection closes.

Pass it as `http=EdgeProtocol` to `uvicorn.Config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from router.errors import BadRequest
from router.proxy.joining import JoiningTransport
from router.proxy.limits import ClientLimits

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from uvicorn._types import ASGI3Application

# The ASGI extension under which a request finds the connection it came on.
EXTENSION = "router.client"

# What a connection is in the middle of.
BETWEEN, HEAD, BODY = range(3)

_GARBLED = b"400 Bad Request", "the request is not HTTP/1.1"
_TOO_LARGE = b"431 Request Header Fields Too Large", "the head of the request is too large"


class EdgeProtocol(HttpToolsProtocol):
    """One client's connection. `on_lost`, if the request under way has set it, is called when it is lost."""

    limits: ClassVar[ClientLimits] = ClientLimits()

    __slots__ = (
        "_bare",
        "_came",
        "_deaf",
        "_due",
        "_extensions",
        "_fed",
        "_open",
        "_reading",
        "_seen",
        "_serving",
        "_timer",
        "hold",
        "on_lost",
        "release",
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put the joining transport between uvicorn and the socket, and expect a request in time."""
        joining = JoiningTransport(cast("asyncio.Transport", transport))
        self.hold, self.release = joining.hold, joining.release
        self.on_lost: Callable[[], None] | None = None
        self._extensions: dict[str, Any] = {EXTENSION: self}
        self._timer: asyncio.TimerHandle | None = None
        self._serving: RequestResponseCycle | None = None
        self._deaf = False
        self._open = False  # a head or a body is unfinished
        self._seen = BETWEEN  # which of them it was after the latest read
        self._fed = False  # some of a body has come in the latest read
        self._reading = 0  # size of the latest read
        self._bare = 0  # bytes in a row that were no body, without the read they began in; -1 before that
        self._came = 0  # bytes of the body since the timer last looked
        super().connection_made(cast("asyncio.Transport", joining))
        self._expect(self.limits.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request under way; one that has yet to look will not find the connection any more."""
        if self._serving is not None and not self._serving.response_complete:
            # uvicorn tells only the request that came last, which is another one when they are pipelined.
            self._serving.disconnected = True
            self._serving.message_event.set()
        self.pipeline.clear()
        super().connection_lost(exc)
        self._extensions.clear()
        if self._timer is not None:
            self._timer.cancel()
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Feed the parser; look closer only when that has left a head or a body unfinished."""
        if self._deaf:
            return
        self._reading = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._ignore_upgrade(memoryview(data), upgrade.args[0])
        except httptools.HttpParserError:
            self._refuse(*_GARBLED)
        if self._open:
            self._unfinished()
        if self.pipeline:
            self._bound_line()

    def cut(self) -> None:
        """Break the answer under way off, behind what has been written of it, so that its client can tell."""
        if self._serving is not None:
            self._serving.disconnected = True  # else uvicorn reports the application for it
        self.transport.close()

    # the parser's side

    def on_message_begin(self) -> None:
        """Let the next request find its connection."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions
        self._open = True
        self._bare = -1
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()

    def _should_upgrade(self) -> bool:
        """Have uvicorn leave a head alone that asks for an upgrade: `_ignore_upgrade` comes next."""
        return True

    def on_chunk_header(self) -> None:
        """Turn away from the head: headers that follow a chunk are trailers."""
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """Keep a piece for the request, unless that has been answered without it."""
        self._fed = True
        cycle = self.cycle
        if not cycle.response_complete:
            cycle.body += body
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            cycle.message_event.set()
        elif self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()

    def on_message_complete(self) -> None:
        """End the request's body, or begin to wait for the next request if this one is answered already."""
        cycle = self.cycle
        if cycle is None or cycle.scope is not self.scope:
            return  # it asks for an upgrade
        self._open = False
        if not cycle.response_complete:
            cycle.more_body = False
            cycle.message_event.set()
        elif self.timeout_keep_alive_task is None:
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Serve a request, unless its head is too large."""
        self._serving = cycle
        if self.timeout_keep_alive_task is not None:
            self._unset_keepalive_if_required()
        limits = self.limits
        many = len(self.headers) > limits.header_fields
        if many or self._bare >= 0 or self._reading > limits.head_bytes or cycle is not self.cycle:
            app = self._unless_large(cycle, app)
        super()._start_asgi_task(cycle, app)

    def _unless_large(self, cycle: RequestResponseCycle, app: ASGI3Application) -> ASGI3Application:
        headers = list(cycle.scope["headers"])
        target = len(cycle.scope["raw_path"]) + len(cycle.scope["query_string"])
        size = target + sum(len(name) + len(value) + 4 for name, value in headers)
        limits = self.limits
        return self._too_large if len(headers) > limits.header_fields or size > limits.head_bytes else app

    async def _too_large(self, *_: object) -> None:
        """Be the application of a request whose head is too large."""
        if self._serving is not None:
            self._serving.disconnected = True
        self._open, self._deaf = False, True
        self._write_error(*_TOO_LARGE)

    def _ignore_upgrade(self, data: memoryview, end: int) -> None:
        """Read on behind a head that asks for an upgrade, which httptools takes for the end of HTTP."""
        try:
            while True:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(b"400 Bad Request", "CONNECT is not supported")
                    return
                head = self._head_without_upgrade()
                if len(head) > self.limits.head_bytes:
                    self._refuse(*_TOO_LARGE)
                    return
                data = data[end:]
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn does
                self.parser.feed_data(head)
                try:
                    self.parser.feed_data(data)
                except httptools.HttpParserUpgrade as upgrade:
                    end = upgrade.args[0]
                else:
                    return
        except httptools.HttpParserError:
            self._refuse(*_GARBLED)

    def _head_without_upgrade(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (method, self.url, version)]
        lines += [b"%b: %b" % field for field in self.headers if field[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])

    # bounds

    def _state(self) -> int:
        if not self._open:
            return BETWEEN
        return BODY if self.cycle is not None and self.cycle.scope is self.scope else HEAD

    def _unfinished(self) -> None:
        """Count a read that left a head or a body unfinished."""
        limits, state = self.limits, self._state()
        if self._bare < 0 or state != self._seen:
            self._seen = state
            self._bare = self._came = 0
            self._expect(limits.head_seconds if state == HEAD else limits.body_seconds)
        elif self._fed:
            self._bare = 0
            self._came += self._reading
        else:
            self._bare += self._reading
            if self._bare > limits.head_bytes:
                self._refuse(*_TOO_LARGE)
        self._fed = False

    def _bound_line(self) -> None:
        """Take no more requests, and none that are too many, when the line is full."""
        line, most = self.pipeline, self.limits.pipelined
        if len(line) > most:
            while len(line) > most:
                line.popleft()
            line[0][0].keep_alive = False
            self._open, self._deaf = False, True

    def _expect(self, seconds: float) -> None:
        """Look after these seconds how far things have come."""
        self._due = self.loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self.loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        limits = self.limits
        remaining = self._due - self.loop.time()
        if remaining > 0:
            self._timer = self.loop.call_later(remaining, self._look)
        elif self.flow.read_paused:
            self._expect(limits.head_seconds)  # it is not the client who keeps us waiting
        elif self._state() == BODY and self._came >= limits.body_seconds * limits.body_bytes_a_second:
            self._came = 0
            self._expect(limits.body_seconds)
        elif self._open:
            self._refuse(b"408 Request Timeout", "the request did not come in time")
        elif self.cycle is None:
            self.transport.close()

    def _refuse(self, status: bytes, message: str) -> None:
        """Answer what cannot be a request, behind the answers that are still due, and close."""
        state = self._state()
        self._open, self._deaf = False, True
        last: RequestResponseCycle | None = self.cycle
        if state == BODY and self.pipeline:
            self.pipeline.popleft()  # it is the newest, and will never be whole
            last = self.pipeline[0][0] if self.pipeline else self._serving
        elif state == BODY and last is not None:
            last.disconnected = True
            last.message_event.set()
            if last.response_started:
                self.transport.close()
                return
        if last is None or last.response_complete or last.disconnected:
            self._write_error(status, message)
        else:
            last.keep_alive = False

    def _write_error(self, status: bytes, message: str) -> None:
        body = BadRequest(message).body()
        fields = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close" % len(body)
        self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, fields, body))
        # A socket that is closed with bytes unread takes the answer back (RFC 9112, 9.6).
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.loop.call_later(self.limits.linger_seconds, self.transport.close)
