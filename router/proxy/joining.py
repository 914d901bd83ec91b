"""A client's socket that can keep the head of an answer back until there is a body to go out with it.

uvicorn writes the two with one system call each; joined they cost one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

# Below this size copying a body behind its head costs less than a second buffer in the transport.
JOINED_BYTES = 32 * 1024


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
