"""What the parent gives a process that it starts: who it is, its settings, its sockets.

It comes as the first thing over the pair of sockets that calls go over later, since a command line would show
the keys that are in the settings to every user of the machine.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping

    from router.api.keys import Keys
    from router.config import Config
    from router.layers import Flags

_LENGTH = 4


@dataclass(frozen=True, slots=True)
class Seat:
    """One process's place among those of a router. Numbers of sockets are those of open files.

    `listening` are those of all places. `router` and `sender` are what it calls itself to its peers; `late`:
    others serve already. `limits`: where they count together what clients use. `good`: settings and keys that
    processes have taken up since the start, for when the files hold something wrong by now.
    """

    config: Config
    flags: Flags
    router: str
    sender: str
    index: int
    late: bool
    listening: tuple[int, ...]
    inbox: int
    others: tuple[int, ...]
    limits: int
    good: Mapping[str, bytes] = field(default_factory=dict)

    def settings(self) -> Config:
        """Return the settings that hold."""
        config: Config = self._good("settings", self.config)
        return config

    def keys(self) -> Keys | None:
        """Return the keys that held last, None when none have been read yet."""
        keys: Keys | None = self._good("keys", None)
        return keys

    def _good(self, what: str, default: Any) -> Any:
        return pickle.loads(self.good[what]) if what in self.good else default  # noqa: S301 - see `receive`


def send(seat: Seat, line: socket.socket) -> None:
    """Give a process its seat."""
    payload = pickle.dumps(seat)
    line.sendall(len(payload).to_bytes(_LENGTH, "big") + payload)


def receive(line: socket.socket) -> Seat:
    """Return one's own seat. Raises EOFError when the parent has gone before it could say."""
    length = int.from_bytes(_exactly(line, _LENGTH), "big")
    seat = pickle.loads(_exactly(line, length))  # noqa: S301 - the parent has written it, who started us
    assert isinstance(seat, Seat)  # noqa: S101 - likewise
    return seat


def _exactly(line: socket.socket, length: int) -> bytes:
    payload = b""
    while len(payload) < length:
        piece = line.recv(length - len(payload))
        if not piece:
            raise EOFError
        payload += piece
    return payload
