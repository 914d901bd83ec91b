"""The connections to one worker, and the requests that go over them.

A request has a connection of its own for as long as its answer is under way; how many may be under way
is decided elsewhere. A request goes out once, with one exception: when a connection that had been idle
is lost before one byte of an answer, the worker had closed it while the request was on its way, and a
fresh connection is tried.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import TYPE_CHECKING

from router.errors import UpstreamFailed, UpstreamTimeout
from router.proxy.connection import Connection
from router.proxy.headers import request_head
from router.proxy.idle import IdleConnections
from router.proxy.limits import Limits
from router.proxy.origin import parse_origin

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.proxy.headers import Field
    from router.proxy.response import Response


class Upstream:
    """One origin, used from one event loop.

    `url` is http:// or https:// (certificates are verified; `tls` replaces the system's trust), with or
    without a path that then stands before every target. Raises ConfigError for any other URL.
    """

    __slots__ = ("_idle", "_limits", "_origin", "_tls", "url")

    def __init__(self, url: str, *, limits: Limits | None = None, tls: ssl.SSLContext | None = None) -> None:
        self.url = url
        self._origin = parse_origin(url)
        self._limits = limits or Limits()
        self._idle = IdleConnections(self._limits)
        self._tls = (tls or ssl.create_default_context()) if self._origin.secure else None

    async def request(
        self, method: bytes, target: bytes, headers: Sequence[Field], body: bytes = b""
    ) -> Response:
        """Send a request and return its answer once the head of that is complete.

        `headers` go out as they are, host and content-length are added: hop-by-hop fields must have
        been taken out (`headers.request_headers`). Whoever gets the answer must `close()` it. Raises
        UpstreamFailed, UpstreamTimeout (connect or first byte), BadRequest for what would split a line.
        Cancelled while it waits, it cancels the request at the worker.
        """
        origin = self._origin
        head = request_head(method, origin.prefix + target, origin.authority, headers, len(body))
        connection = self._idle.take()
        reused = connection is not None
        while True:
            if connection is None:
                connection = await self._connect()
            response = connection.exchange(head, body, bodyless=method == b"HEAD")
            try:
                await response.wait()
            finally:
                if not response.begun:
                    response.close()
            if response.failure is None or response.begun:
                return response
            if not (reused and response.unanswered):
                raise response.failure
            reused, connection = False, None

    async def close(self) -> None:
        """Close the idle connections; those in use close when their answers end."""
        self._idle.close()
        await asyncio.sleep(0)  # the sockets are closed in the loop's next turn

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        origin = self._origin
        try:
            async with asyncio.timeout(self._limits.connect_seconds or None):
                _, connection = await loop.create_connection(
                    lambda: Connection(loop, self._limits, self._idle.put, self._idle.drop),
                    origin.host,
                    origin.port,
                    ssl=self._tls,
                )
        except TimeoutError as error:
            raise UpstreamTimeout("the worker did not accept a connection in time") from error
        except (OSError, UnicodeError) as error:
            raise UpstreamFailed("no connection to the worker could be made") from error
        return connection
