"""The bounds of one upstream: how long to wait, how much to hold. Plain configuration, no state."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Time limits in seconds (0 = none, where that is allowed) and sizes in bytes.

    `first_byte_seconds` runs from the moment the request is written to the first byte of the answer's
    body; `idle_seconds` is how long a reader may then wait for the next piece. `keepalive_seconds` is
    how old an idle connection may grow. `buffer_bytes` is what may wait unread before the worker is
    made to wait (one more read of the socket, up to 256 KiB, can come on top). `head_bytes` bounds the
    status line and headers of an answer, with the same slack.
    """

    connect_seconds: float = 5.0
    first_byte_seconds: float = 0.0
    idle_seconds: float = 0.0
    keepalive_seconds: float = 30.0
    max_idle_connections: int = 1024
    buffer_bytes: int = 256 * 1024
    head_bytes: int = 64 * 1024
