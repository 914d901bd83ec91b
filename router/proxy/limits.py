"""The bounds of upstreams and of clients: how long to wait, how much to hold. No state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds (0 = none, where that is allowed) and sizes in bytes.

    `first_byte_seconds` runs from the moment the request is written to the first byte of the answer's
    body; `idle_seconds` is how long a reader may then wait for the next piece. `keepalive_seconds` is
    how old an idle connection may grow. `buffer_bytes` is what may wait unread before the worker is
    made to wait (one more read of the socket, up to 256 KiB, can come on top). `head_bytes` bounds the
    status line and headers of an answer, and whatever else comes in a row that is no body (trailers, chunk
    extensions), with the same slack. A connection that had been idle and is lost within `stale_seconds` of a
    request had been closed while the request was on its way: that takes a packet's time, an engine more.
    """

    connect_seconds: float = 5.0
    first_byte_seconds: float = 0.0
    idle_seconds: float = 0.0
    keepalive_seconds: float = 30.0
    max_idle_connections: int = 1024
    buffer_bytes: int = 256 * 1024
    head_bytes: int = 64 * 1024
    stale_seconds: float = 0.005


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one client's connection may cost before its request is here. Times in seconds, sizes in bytes.

    `head_bytes` bounds the request line and headers together, and what a chunked body may bring in a row
    that is no body (extensions, trailers); one read of the socket, up to 256 KiB, can come on top of a head
    that is incomplete or pipelined. `header_fields`: how many headers. `head_seconds` runs from the first
    byte of a head to its last, and from the connection to its first head. A body must bring
    `body_bytes_a_second` on the average of each `body_seconds`. `pipelined`: requests that may wait in line
    behind the one being answered. `linger_seconds`: how long a client that was refused may take to notice.
    """

    head_bytes: int = 64 * 1024
    header_fields: int = 256
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    body_bytes_a_second: int = 1024
    pipelined: int = 1024
    linger_seconds: float = 1.0
