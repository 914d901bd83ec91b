"""How far a client's request has come, and how long and how large what is not its body may get.

Nothing here runs for a request that comes whole in one read, except that one time is stored when it has been
answered: one timer per connection, moved only when it fires, looks after heads, bodies and idle connections.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from router.proxy.target import TOO_LONG

if TYPE_CHECKING:
    import asyncio

    from router.proxy.edge import EdgeProtocol

# What a connection is in the middle of.
BETWEEN, HEAD, BODY = range(3)

TOO_LARGE = b"431 Request Header Fields Too Large", "the head of the request is too large"
_ALL_FRAMING = b"400 Bad Request", "the chunks of the request's body are too small"
_TOO_SLOW = b"408 Request Timeout", "the request did not come in time"


class Pace:
    """Counts for one connection and its timer.

    `reading`: size of the latest read. `bare`: bytes in a row that were no body, without the read they began
    in; -1 before that. `fed`: bytes of a body that have come in the latest read.
    """

    __slots__ = (
        "_came",
        "_content",
        "_due",
        "_edge",
        "_framing",
        "_limits",
        "_loop",
        "_seen",
        "_timer",
        "bare",
        "fed",
        "reading",
    )

    def __init__(self, edge: EdgeProtocol, loop: asyncio.AbstractEventLoop) -> None:
        self._edge = edge
        self._limits = edge.limits
        self._loop = loop
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._seen = BETWEEN  # what it was in the middle of after the latest read
        self._came = 0.0  # bytes of the body since the timer last looked
        self.reading = 0
        self.bare = 0
        self.fed = 0
        self._framing = self._content = 0
        self.expect(self._limits.head_seconds)

    def unfinished(self) -> None:
        """Count a read that left a head or a body unfinished."""
        limits, state = self._limits, self._edge.state()
        if self.bare < 0 or state != self._seen:
            self._seen = state
            self.bare = self._framing = self._content = 0
            self._came = 0.0
            self.expect(limits.head_seconds if state == HEAD else limits.body_seconds)
        elif self.fed:
            self.bare = 0
            self._came += self.reading
            self._weigh()
        else:
            self.bare += self.reading
            if self.bare > limits.head_bytes:
                self._edge.refuse(*(TOO_LONG if len(self._edge.url) > limits.head_bytes else TOO_LARGE))
        self.fed = 0

    def _weigh(self) -> None:
        """Refuse a body that is mostly framing: chunks of a few bytes cost a hundred times their size."""
        self._content += self.fed
        self._framing += self.reading - self.fed
        if self._framing > max(self._content, self._limits.head_bytes):
            self._edge.refuse(*_ALL_FRAMING)

    def expect(self, seconds: float) -> None:
        """Look after these seconds how far things have come."""
        self._due = self._loop.time() + seconds
        if self._timer is not None and self._timer.when() > self._due:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._look)

    def drain(self) -> None:
        """Read on in a body whose request is answered, but for no longer than it takes once."""
        self.expect(self._limits.body_seconds)
        self._came = -math.inf

    def linger(self) -> None:
        """Close in a moment: a socket closed with bytes unread takes the answer back (RFC 9112, 9.6)."""
        self.close()
        self._edge.flow.resume_reading()
        self._timer = self._loop.call_later(self._limits.linger_seconds, self._edge.close)

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        self._timer = None
        limits, edge = self._limits, self._edge
        state = edge.state()
        remaining = self._due - self._loop.time()
        if remaining > 0:
            self._timer = self._loop.call_later(remaining, self._look)
        elif edge.flow.read_paused:
            self.expect(limits.head_seconds)  # it is not the client who keeps us waiting
        elif state == BODY and self._came >= limits.body_seconds * limits.body_bytes_a_second:
            self._came = 0
            self.expect(limits.body_seconds)
        elif state != BETWEEN:
            edge.refuse(*_TOO_SLOW)
        elif edge.idle:
            edge.close()
