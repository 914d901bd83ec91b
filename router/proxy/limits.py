"""The bounds of upstreams and of clients: how long to wait, how much to hold. No state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from router.proxy.route_limits import RouteLimits


@dataclass(slots=True)
class Limits:
    """Time limits in seconds (0 = none, where that is allowed) and sizes in bytes.

    Who holds them shares them: the operator may change them while the router runs.

    `first_byte_seconds` runs from the moment the request is written to the first byte of the answer's
    body; `idle_seconds` is how long a reader may then wait for the next piece. `keepalive_seconds` is
    how old an idle connection may grow. `buffer_bytes` is what may wait unread before the worker is
    made to wait (one more read of the socket, up to 256 KiB, can come on top). `head_bytes` bounds the
    status line and headers of an answer, and whatever else comes in a row that is no body (trailers, chunk
    extensions), with the same slack. A connection that had been idle and is lost within `stale_seconds` of a
    request had been closed while the request was on its way: that takes a packet's time, an engine more.

    `total_seconds` runs from a request's arrival to the end of its answer, retries included; it is not the
    upstream's to keep. `routes` are limits that hold instead of these for a path.
    """

    connect_seconds: float = 5.0
    first_byte_seconds: float = 0.0
    idle_seconds: float = 0.0
    keepalive_seconds: float = 30.0
    max_idle_connections: int = 1024
    buffer_bytes: int = 256 * 1024
    head_bytes: int = 64 * 1024
    stale_seconds: float = 0.5
    total_seconds: float = 0.0
    routes: Mapping[bytes, Limits] = field(default_factory=dict)

    @property
    def timed(self) -> bool:
        """Whether any request has a limit in all."""
        return bool(self.total_seconds or self.routes)

    def on(self, target: bytes) -> Limits:
        """Return the limits that hold for a request's target; who has no `routes` need not ask."""
        path = target.partition(b"?")[0]
        return self.routes.get(unquote_to_bytes(path) if b"%" in path else path, self)

    def with_routes(self, routes: Iterable[RouteLimits]) -> Limits:
        """Return these limits with others laid over them for some paths."""
        return replace(self, routes={route.path.encode(): self._laid_over(route) for route in routes})

    def _laid_over(self, route: RouteLimits) -> Limits:
        return replace(
            self,
            connect_seconds=self.connect_seconds if route.connect is None else route.connect,
            first_byte_seconds=self.first_byte_seconds if route.first_byte is None else route.first_byte,
            idle_seconds=self.idle_seconds if route.idle is None else route.idle,
            total_seconds=self.total_seconds if route.total is None else route.total,
        )


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """What one client's connection may cost. Times in seconds, sizes in bytes.

    `head_bytes` bounds the request line and headers together, and what a chunked body may bring in a row
    that is no body (extensions, trailers); one read of the socket, up to 256 KiB, can come on top of a head
    that is incomplete or pipelined. `header_fields`: how many headers. `head_seconds` runs from the first
    byte of a head to its last, and from the connection to its first head. A body must bring
    `body_bytes_a_second` on the average of each `body_seconds`. `pipelined`: requests that may wait in line
    behind the one being answered. `linger_seconds`: how long a client that was refused may take to notice.
    `stall_seconds`: how long one may take nothing of an answer that is there for it, 0 for ever.
    """

    head_bytes: int = 64 * 1024
    header_fields: int = 256
    head_seconds: float = 10.0
    body_seconds: float = 30.0
    body_bytes_a_second: int = 1024
    pipelined: int = 1024
    linger_seconds: float = 1.0
    stall_seconds: float = 60.0
