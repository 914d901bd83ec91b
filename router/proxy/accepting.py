"""Connections of clients: all that wait are taken whenever a socket has some; TLS handshakes have an end.

uvloop's own servers take one in each turn of the loop (0.23, on libuv 1.52). Under load a turn lasts as long
as the requests of all who are in: of 256 clients that came at once the last waited for seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from socket import SHUT_RDWR
from typing import TYPE_CHECKING, Any

import uvloop

from router.proxy.limits import ClientLimits

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from socket import socket

# Who is let in now is served before those who are let in next; more would hold up others' streams for longer.
_AT_ONCE = 256
_REST_SECONDS = 0.1
_SHORT_OF = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class Acceptor:
    """Takes connections from a listening socket until closed; about 60 us each.

    Where the system has nothing left for one more, clients wait in its queue, and it is asked again after
    0.1 s. With `tls` a handshake may take as long as a head (`ClientLimits.head_seconds`). Who has been taken
    is let in, also after `close`: were that broken off, uvloop would never tell the protocol of the end.
    """

    __slots__ = ("_joining", "_listening", "_loop", "_protocol", "_resting", "_tls")

    def __init__(
        self, listening: socket, protocol: Callable[[], asyncio.Protocol], tls: ssl.SSLContext | None
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listening, self._protocol, self._tls = listening, protocol, tls
        self._joining: dict[asyncio.Task[Any], socket] = {}
        self._resting: asyncio.TimerHandle | None = None
        self._watch()

    def close(self) -> None:
        """Take no more, and close the socket."""
        if self._resting is not None:
            self._resting.cancel()
        elif self._listening.fileno() >= 0:
            self._loop.remove_reader(self._listening)
        self._listening.close()

    async def wait_closed(self) -> None:
        """Return when whoever has been taken is in; handshakes under way get their end from below."""
        if self._tls is not None:
            for client in self._joining.values():
                with contextlib.suppress(OSError):
                    client.shutdown(SHUT_RDWR)
        await asyncio.gather(*self._joining, return_exceptions=True)

    def _watch(self) -> None:
        self._resting = None
        self._loop.add_reader(self._listening, self._take)

    def _take(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                client, _ = self._listening.accept()
            except BlockingIOError:
                return
            except OSError as error:  # else it concerns the one connection only, which has failed meanwhile
                if error.errno in _SHORT_OF:
                    self._rest()
                    return
            else:
                self._let_in(client)

    def _rest(self) -> None:
        self._loop.remove_reader(self._listening)
        self._resting = self._loop.call_later(_REST_SECONDS, self._watch)

    def _let_in(self, client: socket) -> None:
        client.setblocking(False)
        limit = None if self._tls is None else ClientLimits().head_seconds
        joining = self._loop.connect_accepted_socket(
            self._protocol, client, ssl=self._tls, ssl_handshake_timeout=limit
        )
        task = self._loop.create_task(joining)
        self._joining[task] = client
        task.add_done_callback(self._joined)

    def _joined(self, task: asyncio.Task[Any]) -> None:
        del self._joining[task]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, OSError):  # a client may break off in any way
            self._loop.call_exception_handler({"message": "a client was not let in", "exception": error})


class Loop(uvloop.Loop):
    """uvloop's event loop, whose servers are `Acceptor`s."""

    async def create_server(  # type: ignore[override] # this is all that is asked of it here
        self,
        protocol_factory: Callable[[], asyncio.Protocol],
        *,
        sock: socket,
        ssl: ssl.SSLContext | None = None,
        backlog: int,
    ) -> Acceptor:
        """Listen, and take connections from a bound socket."""
        sock.listen(backlog)
        sock.setblocking(False)
        return Acceptor(sock, protocol_factory, ssl)
