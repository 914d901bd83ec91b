"""A client on one keep-alive connection that times the first byte of an answer's body, and the last."""

from __future__ import annotations

import re
import socket
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_LAST_CHUNK = b"\r\n0\r\n\r\n"
SECONDS = 30.0


def connected(url: str) -> socket.socket:
    """Return a connection to a router or worker."""
    parts = urlsplit(url)
    made = socket.create_connection((parts.hostname, parts.port), timeout=SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def request_of(body: bytes) -> bytes:
    """Return a chat as it is sent."""
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


@dataclass(slots=True)
class Answer:
    """`first` and `whole` are seconds since the request was begun to be sent; `text` has everything."""

    first: float
    whole: float
    text: bytes


class Client:
    """Asks one router or worker."""

    def __init__(self, url: str) -> None:
        self._socket = connected(url)

    def ask(self, body: bytes) -> Answer:
        """Send a chat and read its answer. Raises OSError unless it is a 200."""
        request = request_of(body)
        began = time.perf_counter()
        self._socket.sendall(request)
        text, first = b"", 0.0
        while not _is_complete(text):
            piece = self._socket.recv(65536)
            if not piece:
                raise ConnectionError(text[:500])
            text += piece
            if not first and len(text) > text.find(b"\r\n\r\n") + 4 > 3:
                first = time.perf_counter() - began
        whole = time.perf_counter() - began
        if not text.startswith(b"HTTP/1.1 200"):
            raise ConnectionError(text[:500])
        return Answer(first, whole, text)

    def close(self) -> None:
        self._socket.close()


def _is_complete(text: bytes) -> bool:
    end = text.find(b"\r\n\r\n") + 4
    if end <= 3:
        return False
    length = _LENGTH.search(text, 0, end)
    return len(text) >= end + int(length[1]) if length else text.endswith(_LAST_CHUNK)
