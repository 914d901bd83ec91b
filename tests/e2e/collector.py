"""An OTLP/HTTP receiver: takes what an OpenTelemetry exporter posts, and keeps the spans."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

Value = str | int | float | bool
_ERROR = 2  # STATUS_CODE_ERROR
_ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 0\r\n\r\n"


@dataclass(slots=True)
class Span:
    """One span; ids in hex, "" for no parent, times in seconds since the epoch."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    began: float
    ended: float
    failed: bool
    said: dict[str, Value]


@dataclass(slots=True)
class Collector:
    """What has come: the bodies as they were posted to `paths`, the spans in them, and who sent them."""

    url: str = ""
    paths: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    resource: dict[str, Value] = field(default_factory=dict)

    def named(self, name: str) -> list[Span]:
        """Return the spans of a name."""
        return [span for span in self.spans if span.name == name]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection's requests."""
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError), contextlib.closing(writer):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                fields = dict(line.split(b": ", 1) for line in lines[1:] if b": " in line)
                body = await reader.readexactly(int(fields[b"content-length"]))
                if fields.get(b"content-encoding") == b"gzip":
                    body = gzip.decompress(body)
                self._take(head.split(b" ")[1], body)
                writer.write(_ANSWER)

    def _take(self, path: bytes, body: bytes) -> None:
        self.paths.append(path)
        self.bodies.append(body)
        for whole in json.loads(body)["resourceSpans"]:
            self.resource = _said(whole["resource"])
            self.spans += [_span(span) for scope in whole["scopeSpans"] for span in scope["spans"]]


def _span(span: dict[str, Any]) -> Span:
    """Read one span in OTLP's JSON: numbers of 64 bits are texts, ids are in hex."""
    return Span(
        span["name"],
        span["kind"],
        span["traceId"],
        span["spanId"],
        span.get("parentSpanId", ""),
        int(span["startTimeUnixNano"]) / 1e9,
        int(span["endTimeUnixNano"]) / 1e9,
        span.get("status", {}).get("code") == _ERROR,
        _said(span),
    )


def _said(what: dict[str, Any]) -> dict[str, Value]:
    return {each["key"]: _value(each["value"]) for each in what.get("attributes", [])}


def _value(value: dict[str, Any]) -> Value:
    ((kind, found),) = value.items()
    return int(found) if kind == "intValue" else found


@asynccontextmanager
async def collector(port: int = 0) -> AsyncIterator[Collector]:
    """Run one; 0 is any port."""
    made = Collector()
    server = await asyncio.start_server(made.serve, "127.0.0.1", port)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made
