"""Answers, written straight to ASGI: JSON, text, and server-sent events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
_EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8")]
encode = msgspec.json.Encoder().encode


async def _send(
    send: Send, status: int, content_type: bytes, body: bytes, more: tuple[tuple[bytes, bytes], ...] = ()
) -> None:
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *more]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@dataclass(slots=True)
class Json:
    """A JSON answer; an ASGI application as it is."""

    value: Any
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the answer."""
        await self.send(send)

    async def send(self, send: Send) -> None:
        """Send the answer."""
        await _send(send, self.status, b"application/json", encode(self.value), self.headers)


@dataclass(slots=True)
class Text:
    """A plain text answer; an ASGI application as it is."""

    value: str = ""
    status: int = 200

    async def __call__(self, _scope: Scope, _receive: Receive, send: Send) -> None:
        """Send the answer."""
        await _send(send, self.status, b"text/plain; charset=utf-8", self.value.encode())


def event(value: Any) -> bytes:
    """Return one server-sent event."""
    return b"data: " + encode(value) + b"\n\n"


async def start_stream(send: Send) -> None:
    """Send the head of an event stream."""
    await send({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM})


async def send_piece(send: Send, piece: bytes) -> None:
    """Send some events; more follow."""
    await send({"type": "http.response.body", "body": piece, "more_body": True})


async def end_stream(send: Send, piece: bytes) -> None:
    """Send the last events."""
    await send({"type": "http.response.body", "body": piece})
