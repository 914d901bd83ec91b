"""Streams that run beside something else, and how late their chunks come.

A chunk's id is the time at which the worker has sent it, so that its delay is the router's, and that of the
machine, but never the worker's.
"""

from __future__ import annotations

import re
import selectors
import socket
import threading
import time
from typing import TYPE_CHECKING

from tests.bench.client import connected, request_of

if TYPE_CHECKING:
    from collections.abc import Sequence

WAIT_SECONDS = 10.0
_SENT = re.compile(rb'"id":"(\d{16})"')


class Streams:
    """Runs one stream per body until stopped."""

    def __init__(self, url: str, bodies: Sequence[bytes]) -> None:
        self._delays: list[float] = []
        self._over = threading.Event()
        self._selector = selectors.DefaultSelector()
        self._sockets: list[socket.socket] = []
        for body in bodies:
            made = connected(url)
            self._sockets.append(made)
            made.sendall(request_of(body))
            _wait_for_a_chunk(made)
            self._selector.register(made, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> list[float]:
        """Cut the streams; return the delay of every chunk since all have begun, in ms."""
        self._over.set()
        self._thread.join()
        self._selector.close()
        for each in self._sockets:
            each.close()
        return self._delays

    def _run(self) -> None:
        while not self._over.is_set():
            for key, _ in self._selector.select(timeout=0.1):
                assert isinstance(key.fileobj, socket.socket)
                piece = key.fileobj.recv(65536)
                now = time.monotonic_ns()
                assert piece, "a stream has ended too early"
                self._delays += [(now - int(sent)) / 1e6 for sent in _SENT.findall(piece)]


def _wait_for_a_chunk(made: socket.socket) -> None:
    made.settimeout(WAIT_SECONDS)
    text = b""
    while not _SENT.search(text):
        text += made.recv(65536)
