"""One request of a client and its answer, past ASGI.

The body lies there as it has come; the head of the answer is written in one piece with the beginning of its
body, then pieces as they come, each with one call and nothing in between. Fields must not be hop-by-hop ones;
what would split a line is refused.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from router.errors import UpstreamFailed
from router.proxy.drive import Waiter
from router.proxy.headers import joined

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Self

    from uvicorn.protocols.http.flow_control import FlowControl

    from router.proxy.asgi import Message
    from router.proxy.drive import Drive
    from router.proxy.forwarding import Sender
    from router.proxy.headers import Field

    Handler = Callable[["Cycle"], Coroutine[Any, Any, None]]

# Below this size copying a body behind its head costs less than a second buffer in the transport.
JOINED_BYTES = 32 * 1024
_STATUS = {status: line.removesuffix(b"\r\n") for status, line in STATUS_LINE.items()}
_WITHOUT_BODY = frozenset({204, 304})


class Cycle:
    """What `handler` serves; `drive` steps it.

    `target` is path and query as they came, `headers` have their names in lower case, `sender` is who is at
    the other end. `body` is what has come of the body and not been taken, `more_body` says whether there is
    more. `on_lost`, if set, is called when the client is lost; `disconnected` says that nobody is there any
    more: what is written then goes nowhere.
    """

    __slots__ = (
        "_bodyless",
        "_due",
        "_ends_with_connection",
        "_http10",
        "_loop",
        "_on_complete",
        "_waiter",
        "body",
        "chunked",
        "disconnected",
        "drive",
        "expects_100",
        "flow",
        "handler",
        "headers",
        "keep_alive",
        "method",
        "more_body",
        "on_lost",
        "response_complete",
        "response_started",
        "sender",
        "target",
        "transport",
    )

    drive: Drive

    def __init__(
        self,
        handler: Handler,
        loop: asyncio.AbstractEventLoop,
        transport: asyncio.Transport,
        flow: FlowControl,
        on_complete: Callable[[], None],
        sender: Sender,
        *,
        method: bytes,
        target: bytes,
        headers: list[Field],
        http10: bool,
        keep_alive: bool,
        expects_100: bool,
    ) -> None:
        self.handler = handler
        self._loop = loop
        self.transport = transport
        self.flow = flow
        self._on_complete = on_complete
        self.sender = sender
        self.method = method
        self.target = target
        self.headers = headers
        self._http10 = http10
        self.keep_alive = keep_alive
        self.expects_100 = expects_100
        self.body: bytes | bytearray = b""
        self.more_body = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False
        self.on_lost: Callable[[], None] | None = None
        self._waiter: Waiter | None = None
        self._ends_with_connection = False
        self._due: int | None = None  # bytes of the body that the head has promised and that have not come

    # the body, and the client's end

    def declared_length(self) -> int:
        """Return how many bytes the head says that the body has; 0 when it says nothing."""
        return next((int(value) for name, value in self.headers if name == b"content-length"), 0)

    @property
    def message_event(self) -> Self:
        """Return what uvicorn sets when something has come, or the client has gone."""
        return self

    def set(self) -> None:
        """Wake who waits for the body."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            waiter.wake()

    async def receive(self) -> Message:
        """Return the next of the body in ASGI's form, or that the client has gone."""
        if self.expects_100 and not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self.expects_100 = False
        while self.more_body and not self.body and not self.disconnected:
            self.flow.resume_reading()
            self._waiter = Waiter(self._loop)
            await self._waiter
        if self.disconnected:
            return {"type": "http.disconnect"}
        body, self.body = self.body, b""
        return {"type": "http.request", "body": bytes(body), "more_body": self.more_body}

    # the answer

    def begin(self, status: int, fields: Sequence[Field], piece: bytes, *, more: bool) -> None:
        """Write the head and the first piece of the body, which is the whole of it unless there is `more`.

        Raises UpstreamFailed, with nothing written, when a field would split a line. About 2 us.
        """
        lines = [_STATUS[status]]
        lines += map(b": ".join, fields)
        self._frame(status, fields, lines)
        lines.append(b"\r\n")
        head = joined(lines)
        if head is None:
            raise UpstreamFailed("the worker's answer holds a character that must not be in a header")
        self.response_started = True
        body = self._framed(piece, more=more)
        if self.disconnected:
            return
        if len(body) <= JOINED_BYTES:
            self.transport.write(head + body)
        else:
            self.transport.writelines((head, body))
        if not more:
            self._complete()

    def write(self, piece: bytes) -> None:
        """Write another piece; who writes much looks at `flow.write_paused` after it."""
        if not self.disconnected:
            self.transport.write(self._framed(piece, more=True))

    def end(self, piece: bytes = b"") -> None:
        """Write the last piece."""
        if not self.disconnected:
            last = self._framed(piece, more=False)
            if last:
                self.transport.write(last)
            self._complete()

    def cut(self) -> None:
        """Break the answer off, behind what has been written of it, so that the client can tell."""
        self.disconnected = True
        if self._ends_with_connection:
            reset(self.transport)
        else:
            self.transport.close()

    def _frame(self, status: int, fields: Sequence[Field], lines: list[bytes]) -> None:
        """Add the lines that say how the body ends, and take note of it for the pieces."""
        self.chunked = False
        self._bodyless = status in _WITHOUT_BODY or self.method == b"HEAD"
        if not self._bodyless:
            for name, value in fields:
                if name == b"content-length":
                    self._due = int(value)
                    break
            else:
                self._unsized(lines)
        if self.expects_100 and self.more_body:
            self.keep_alive = False  # whether a body follows is now the client's to decide
        if not self.keep_alive:
            lines.append(b"connection: close")

    def _unsized(self, lines: list[bytes]) -> None:
        if self._http10:
            self.keep_alive = False  # it knows no chunks
            self._ends_with_connection = True
        else:
            self.chunked = True
            lines.append(b"transfer-encoding: chunked")

    def _framed(self, piece: bytes, *, more: bool) -> bytes:
        if self.chunked:
            if not more:
                return b"%x\r\n%b\r\n0\r\n\r\n" % (len(piece), piece) if piece else b"0\r\n\r\n"
            return b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b""
        if self._bodyless:
            return b""
        if self._due is not None:
            self._due -= len(piece)
        return piece

    def _complete(self) -> None:
        if self._due:
            self.cut()
            return
        self.response_complete = True
        if not self.keep_alive and not self.more_body:
            self.transport.close()
        self._on_complete()


def reset(transport: asyncio.Transport) -> None:
    """Close a connection so that its client cannot take the end for an orderly one (RFC 9112, 8)."""
    end = transport.get_extra_info("socket")
    if end is not None:
        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()
