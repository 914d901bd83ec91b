"""The client's side of the data plane: uvicorn's httptools protocol, with costs taken out and bounds put in.

An application may have a method `handler(method, path)` besides being an ASGI one: what that returns, unless
None, serves the request with a `Cycle` alone, stepped by a `Drive`; it must not raise. All other requests are
ASGI's. Its `forwarding`, if it has one, says what workers are told of clients. Whoever connects can make the
router hold no more, and wait no longer, than `limits` say, which may be the application's. Its `unread`, if
it has one, is called with the status by which something is refused that cannot be read as a request. Nothing
that a client sends is logged.

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

from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from router.proxy.check import LOOKED_AT, is_host, refusal_body, refusal_of
from router.proxy.cycle import Cycle
from router.proxy.drive import Drive
from router.proxy.forwarding import Forwarding
from router.proxy.goodbye import Goodbye
from router.proxy.limits import ClientLimits
from router.proxy.making import check_field, made_cycle
from router.proxy.pace import BETWEEN, BODY, HEAD, TOO_LARGE, Pace
from router.proxy.stall import Stall
from router.proxy.upgrade import ignore_upgrade, read_leniently

if TYPE_CHECKING:
    import asyncio
    from collections import deque
    from collections.abc import Callable

    from router.proxy.cycle import Handler

    AnyCycle = Cycle | RequestResponseCycle

_DIRECT = Forwarding()


class EdgeProtocol(HttpToolsProtocol):
    """One client's connection.

    `_serving` is the request whose turn it is, `cycle` the one that came last; `_current` is that one, too,
    but None as long as its successor's head is being read.
    """

    limits: ClientLimits = ClientLimits()
    cycle: AnyCycle  # type: ignore[assignment] # uvicorn makes all of them itself
    pipeline: deque[tuple[AnyCycle, Any]]  # type: ignore[assignment] # likewise

    __slots__ = (
        "_ahead",
        "_current",
        "_deaf",
        "_goodbye",
        "_news",
        "_open",
        "_pace",
        "_serving",
        "_stall",
        "_starting",
        "handler",
        "host",
        "sender",
        "unread",
    )

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Expect a request in time."""
        self.handler: Callable[[bytes, str], Handler | None] = getattr(self.app, "handler", _no_handler)
        self._serving: AnyCycle | None = None
        self._starting: AnyCycle | None = None
        self._current: AnyCycle | None = None
        self._deaf = False
        self._open = False  # a head or a body is unfinished
        self._news = False  # the latest read has brought some of a body, or its end
        self._ahead = 0  # bytes read since requests wait in line
        super().connection_made(cast("asyncio.Transport", transport))
        read_leniently(self.parser)
        forwarding: Forwarding = getattr(self.app, "forwarding", _DIRECT)
        self.sender = forwarding.sender(self.client[0] if self.client else None, self.scheme or "http")
        self.limits = getattr(self.app, "limits", self.limits)
        self.unread: Callable[[int], None] = getattr(self.app, "unread", _nobody)
        self._pace = Pace(self, self.loop)
        self._stall = Stall(self.transport, self.loop, self.limits.stall_seconds)
        self._goodbye = Goodbye(self.transport, self.loop) if self.scheme == "https" else None

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request under way."""
        serving = self._serving
        if serving is not None and not serving.response_complete:
            # uvicorn tells only the request that came last, which is another one when they are pipelined.
            serving.disconnected = True
            serving.message_event.set()
        self.pipeline.clear()
        self._starting = None
        super().connection_lost(exc)
        self._pace.close()
        self._stall.end()
        if self._goodbye is not None:
            self._goodbye.end()
        if isinstance(serving, Cycle) and serving.on_lost is not None:
            serving.on_lost()

    def data_received(self, data: bytes) -> None:
        """Feed the parser, then start what has come; look closer only at a head or a body left unfinished."""
        if self._deaf:
            return
        self._pace.reading = len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            ignore_upgrade(self, memoryview(data), upgrade.args[0])
        except httptools.HttpParserError as error:
            self.refuse(*refusal_of(error, data))
        if self._open:
            self._pace.unfinished()
        if self.pipeline:
            self._bound_line()
        if self._starting is not None:
            self._start()
        elif self._news and self._serving is not None:
            self._serving.message_event.set()  # once per read, however many pieces it brought
        self._news = False

    def pause_writing(self) -> None:
        """Give a client that reads more slowly than the answer comes a limited time for each bit of it."""
        self.flow.pause_writing()
        self._stall.watch()

    def resume_writing(self) -> None:
        """Take note that the client has caught up."""
        self._stall.end()
        self.flow.resume_writing()

    def close(self) -> None:
        """Close the connection once the client has taken what is left for it."""
        self.transport.close()
        self._part()

    def shutdown(self) -> None:
        """Close the connection as soon as no request is being served on it: the server stops."""
        super().shutdown()
        if self.transport.is_closing():
            self._part()

    def _part(self) -> None:
        """See to it that a connection which is being closed has an end, whatever the client does."""
        self._stall.watch()
        if self._goodbye is not None:
            self._goodbye.wait()

    # the parser's side

    def on_message_begin(self) -> None:
        """Begin to read a head."""
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self.host: bytes | None = None
        self._current = None
        self._open = True
        self._pace.bare = -1

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field down, its name in lower case."""
        name = name.lower()
        if name in LOOKED_AT and self._current is None:
            if name == b"host" and self.host is None and is_host(value):
                self.host = value
            else:
                check_field(self, name, value)
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Make the request, and give it its turn if nobody is before it."""
        if self.parser.should_upgrade():
            return  # `ignore_upgrade` comes next
        before = self.cycle
        self._current = self.cycle = cycle = made_cycle(self)
        if before is None or before.response_complete:
            self._give_turn(cycle)
        else:
            # Read on as far as it costs little: the end of the connection shows only to who reads.
            self._ahead += self._pace.reading
            if self._ahead > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def on_chunk_header(self) -> None:
        """Turn away from the head: headers that follow a chunk are trailers."""
        self.headers = []

    def on_body(self, body: bytes) -> None:
        """Keep a piece for the request, unless that has been answered without it."""
        self._pace.fed += len(body)
        cycle = self.cycle
        if not cycle.response_complete:
            if not cycle.body and isinstance(cycle, Cycle):
                cycle.body = body
            else:
                cycle.body = _longer(cycle.body, body)
            if len(cycle.body) > HIGH_WATER_LIMIT:
                self.flow.pause_reading()
            self._news = True

    def on_message_complete(self) -> None:
        """End the request's body, or begin to wait for the next request if this one is answered already."""
        cycle = self._current
        if cycle is None:
            return  # it asks for an upgrade
        self._open = False
        if not cycle.response_complete:
            cycle.more_body = False
            self._news = True
        elif not self.pipeline:
            self._pace.expect(self.timeout_keep_alive)

    # turns

    def _give_turn(self, cycle: AnyCycle) -> None:
        """Have a request served as soon as what has been read is parsed."""
        self._serving = self._starting = cycle
        pace, limits = self._pace, self.limits
        many = len(self.headers) > limits.header_fields
        if many or pace.bare >= 0 or pace.reading > limits.head_bytes or cycle is not self.cycle:
            self._look_at_head(cycle)

    def _look_at_head(self, cycle: AnyCycle) -> None:
        """Have a request refused whose head is too large."""
        if isinstance(cycle, Cycle):
            headers, size = cycle.headers, len(cycle.target)
        else:
            headers = list(cycle.scope["headers"])
            size = len(cycle.scope["raw_path"]) + len(cycle.scope["query_string"])
        size += sum(len(name) + len(value) + 4 for name, value in headers)
        if len(headers) > self.limits.header_fields or size > self.limits.head_bytes:
            self._starting = None
            self.loop.call_soon(self._too_large, cycle)

    def _too_large(self, cycle: AnyCycle) -> None:
        cycle.disconnected = True
        self._open, self._deaf = False, True
        if not self.transport.is_closing():
            self._write_error(*TOO_LARGE)

    def _start(self) -> None:
        """Serve the request whose turn has come, a `Cycle` up to the first thing that it has to wait for."""
        cycle, self._starting = self._starting, None
        if cycle is None:
            return  # it has been started, or its client has gone
        if isinstance(cycle, Cycle):
            cycle.drive = Drive(cycle.handler(cycle), self.loop, self.tasks)
            cycle.drive.start()
        else:
            cycle.message_event.set()
            self._start_asgi_task(cycle, self.app)

    def on_response_complete(self) -> None:
        """Give the next request its turn, or wait for one."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._part()
            return
        self.flow.resume_reading()
        self._ahead = 0
        if self.pipeline:
            cycle, _ = self.pipeline.pop()
            self._give_turn(cycle)
            self.loop.call_soon(self._start)  # not from within its predecessor: the stack has an end
        elif not self._open:
            self._pace.expect(self.timeout_keep_alive)
        elif self._current is not None:
            self._drain(self._current)

    def _drain(self, cycle: AnyCycle) -> None:
        """Read the rest of a body that nobody needs, so that its sender reads the answer."""
        if cycle.keep_alive:
            self._pace.drain()
        else:
            self._open, self._deaf = False, True
            self._pace.linger()

    def _bound_line(self) -> None:
        """Take no more requests, and none that are too many, when the line is full."""
        line, most = self.pipeline, self.limits.pipelined
        if len(line) > most:
            while len(line) > most:
                line.popleft()
            line[0][0].keep_alive = False
            self._open, self._deaf = False, True

    # what cannot be a request

    def state(self) -> int:
        """Return what the connection is in the middle of: BETWEEN, HEAD or BODY."""
        if not self._open:
            return BETWEEN
        return HEAD if self._current is None else BODY

    @property
    def idle(self) -> bool:
        """Whether no request is being served."""
        return self.cycle is None or self.cycle.response_complete

    def refuse(self, status: bytes, message: str) -> None:
        """Answer what cannot be a request, behind the answers that are still due, and close."""
        state = self.state()
        self._open, self._deaf = False, True
        last: AnyCycle | None = self.cycle
        if state == BODY and self.pipeline:
            self.pipeline.popleft()  # it is the newest, and will never be whole
            last = self.pipeline[0][0] if self.pipeline else self._serving
        elif state == BODY and last is not None:
            started = last.response_started
            last.disconnected = True
            last.message_event.set()
            if started:
                self.transport.close()
                return
        if last is None or last.response_complete or last.disconnected:
            self._write_error(status, message)
        else:
            last.keep_alive = False

    def _write_error(self, status: bytes, message: str) -> None:
        self.unread(int(status[:3]))
        body = refusal_body(status, message)
        fields = b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close" % len(body)
        self.transport.write(b"HTTP/1.1 %b\r\n%b\r\n\r\n%b" % (status, fields, body))
        self._pace.linger()


def _nobody(_status: int) -> None:
    return


def _no_handler(_method: bytes, _path: str) -> None:
    return None


def _longer(body: bytes | bytearray, piece: bytes) -> bytearray:
    """Return a body with one more piece: bytes as long as there is one only, then one growing buffer."""
    if isinstance(body, bytes):
        body = bytearray(body)
    body += piece
    return body
