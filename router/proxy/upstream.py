"""The connections to one worker, and the requests that go over them.

A request has a connection of its own for as long as its answer is under way; how many may be under way
is decided elsewhere. A request is written once: a worker that has it may work on it, so whether to write
it again is up to the caller, who finds in a failure what is known. `sent` is False when nothing was written.
`stale` is True when the connection had been idle and was lost as soon as the request was written, before
one byte of an answer: the worker had closed it, and most likely never saw the request.
"""

from __future__ import annotations

import asyncio
import ssl
from time import perf_counter
from typing import TYPE_CHECKING

from router.errors import OutOfDescriptors, UpstreamFailed, UpstreamTimeout, WorkerRemoved
from router.proxy.connection import Connection
from router.proxy.descriptors import are_missing
from router.proxy.drive import in_task
from router.proxy.headers import request_head
from router.proxy.idle import IdleConnections
from router.proxy.limits import Limits
from router.proxy.origin import parse_origin

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.proxy.headers import Field
    from router.proxy.response import Response


class Upstream:
    """One origin, used from one event loop.

    `url` is http:// or https:// (certificates are verified; `tls` replaces the system's trust), with or
    without a path that then stands before every target. `address`: connect there, instead of looking up the
    URL's host, which is who is expected there. `key` goes with every request (Authorization: Bearer).
    `connected` is told how many seconds each new connection has taken, `starved` that there was no file
    descriptor for one. Raises ConfigError for any other URL.
    """

    __slots__ = (
        "_address",
        "_closed",
        "_connected",
        "_idle",
        "_limits",
        "_open",
        "_origin",
        "_ours",
        "_starved",
        "_tls",
        "url",
    )

    def __init__(
        self,
        url: str,
        *,
        limits: Limits | None = None,
        tls: ssl.SSLContext | None = None,
        address: str | None = None,
        key: str | None = None,
        connected: Callable[[float], None] | None = None,
        starved: Callable[[], None] | None = None,
    ) -> None:
        self.url = url
        self._starved = starved
        self._connected = connected
        self._origin = parse_origin(url)
        self._ours = [b"host: " + self._origin.authority]
        if key is not None:
            self._ours.append(b"authorization: Bearer " + key.encode())
        self._address = address or self._origin.host
        self._limits = limits or Limits()
        self._idle = IdleConnections(self._limits)
        self._open: set[Connection] = set()
        self._closed = False
        self._tls = (tls or ssl.create_default_context()) if self._origin.secure else None

    async def request(
        self,
        method: bytes,
        target: bytes,
        headers: Sequence[Field],
        body: bytes = b"",
        *,
        fresh: bool = False,
    ) -> Response:
        """Send a request and return its answer once the head of that is complete.

        `fresh`: on a new connection, where a `stale` one has just been found.
        `headers` go out as they are, host and content-length are added: hop-by-hop fields must have
        been taken out (`headers.request_headers`). Whoever gets the answer must `close()` it. Raises
        UpstreamFailed, UpstreamTimeout (connect or first byte), BadRequest for what would split a line.
        Cancelled while it waits, it cancels the request at the worker.
        """
        head = request_head(method, self._origin.prefix + target, self._ours, headers, len(body))
        limits = self._limits.on(target) if self._limits.routes else self._limits
        connection = None if fresh else self._idle.take()
        if connection is None:
            connection = await self._connect(limits)
        response = connection.exchange(head, body, limits, bodyless=method == b"HEAD")
        try:
            await response.wait()
        finally:
            if not response.begun:
                response.close()
        if response.failure is not None and not response.begun:
            raise response.failure
        return response

    @property
    def peer(self) -> tuple[str, int]:
        """The host or address, and the port, that connections go to."""
        return self._address, self._origin.port

    @property
    def busy(self) -> int:
        """How many requests are under way."""
        return len(self._open) - len(self._idle)

    async def close(self) -> None:
        """Close all connections, for good; answers under way end with WorkerRemoved."""
        self._closed = True
        self._idle.close()
        loop = asyncio.get_running_loop()
        for connection in list(self._open):
            # In a turn of its own: a request goes on within it, and must not take this Task for its own.
            loop.call_soon(connection.fail, WorkerRemoved())
        await asyncio.sleep(0)
        await asyncio.sleep(0)  # the sockets are closed in the turn after that

    def _lost(self, connection: Connection) -> None:
        self._idle.drop(connection)
        self._open.discard(connection)

    async def _connect(self, limits: Limits) -> Connection:
        await in_task()
        loop = asyncio.get_running_loop()
        origin, began = self._origin, perf_counter()
        try:
            async with asyncio.timeout(limits.connect_seconds or None):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._limits, self._idle.put, self._lost),
                    self._address,
                    origin.port,
                    ssl=self._tls,
                    server_hostname=origin.host if self._tls is not None else None,
                )
        except TimeoutError as error:
            raise _not_sent(UpstreamTimeout("the worker did not accept a connection in time")) from error
        except (OSError, UnicodeError) as error:
            if are_missing(error):
                if self._starved is not None:
                    self._starved()
                raise OutOfDescriptors("the router has no file descriptor left", retry_after=1) from error
            raise _not_sent(UpstreamFailed("no connection to the worker could be made")) from error
        if self._closed:
            connection.abort()
            raise _not_sent(WorkerRemoved())
        self._open.add(connection)
        if self._connected is not None:
            self._connected(perf_counter() - began)
        return connection


def _not_sent(failure: UpstreamFailed) -> UpstreamFailed:
    failure.sent = False
    return failure
