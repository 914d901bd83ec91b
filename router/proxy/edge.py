"""The client's side of the data plane: uvicorn's httptools protocol, with two costs taken out.

uvicorn writes the head and the body of an answer with one system call each; `hold()` makes the head wait
for the body. And uvicorn tells of a lost client only to those who await `receive()`; here the request
under way can leave a callback instead. `relay` and `ClientWatch` use both when they find them, everything
else is uvicorn's. Pass it as `http=EdgeProtocol` to `uvicorn.Config`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# The ASGI extension under which a request finds the connection it came on.
EXTENSION = "router.client"

# Below this size copying a body behind its head costs less than a second buffer in the transport.
JOINED_BYTES = 32 * 1024


class EdgeProtocol(HttpToolsProtocol):
    """One client's connection. `on_lost`, if the request under way has set it, is called when it is lost."""

    on_lost: Callable[[], None] | None = None
    hold: Callable[[], None]
    release: Callable[[], None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Put the joining transport between uvicorn and the socket."""
        joining = JoiningTransport(cast("asyncio.Transport", transport))
        self.hold, self.release = joining.hold, joining.release
        self._extensions: dict[str, Any] = {EXTENSION: self}
        super().connection_made(cast("asyncio.Transport", joining))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the request under way; one that has yet to look will not find the connection any more."""
        super().connection_lost(exc)
        self._extensions.clear()
        if self.on_lost is not None:
            self.on_lost()

    def on_message_begin(self) -> None:
        """Let the next request find its connection."""
        super().on_message_begin()
        self.scope["extensions"] = self._extensions


class JoiningTransport:
    """A transport that can keep one write back, to let it go out together with the next.

    `write` is the socket's own method at all other times: the pieces of a stream cost nothing here.
    """

    __slots__ = ("_held", "_socket", "is_closing", "pause_reading", "resume_reading", "write")

    def __init__(self, socket: asyncio.Transport) -> None:
        self._socket = socket
        self._held = b""
        self.write: Callable[[bytes], None] = socket.write
        self.is_closing = socket.is_closing
        self.pause_reading = socket.pause_reading
        self.resume_reading = socket.resume_reading

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def hold(self) -> None:
        """Keep the next write back until there is another, or `release`."""
        self.write = self._hold

    def release(self) -> None:
        """Let go what is still held."""
        self.write = self._socket.write
        if self._held:
            self._join(b"")

    def close(self) -> None:
        """Close once what is held has gone out."""
        self.release()
        self._socket.close()

    def _hold(self, data: bytes) -> None:
        self._held = data
        self.write = self._join

    def _join(self, data: bytes) -> None:
        held, self._held = self._held, b""
        self.write = self._socket.write
        if len(data) <= JOINED_BYTES:
            self._socket.write(held + data)
        else:
            self._socket.writelines((held, data))
