"""Listening sockets of the others' places, from which a process takes connections while nobody serves there.

The system goes on to give each place its share of new connections, also while its process is dead, starts, or
cannot start because a file it needs is not what it was. None of them waits for that: the others take them.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping


class Listener(Protocol):
    """What takes connections from a socket."""

    def close(self) -> None:
        """Take no more."""


class Doors:
    """`files` are the places' listening sockets, as numbers of open files."""

    def __init__(self, files: Mapping[int, int]) -> None:
        self._files = dict(files)
        self._vacant: frozenset[int] = frozenset()
        self._open: dict[int, Listener] = {}
        self._listen: Callable[[socket.socket], Awaitable[Listener]] | None = None

    async def start(self, listen: Callable[[socket.socket], Awaitable[Listener]]) -> None:
        """Begin, now that this process can serve: `listen` takes connections from a socket."""
        self._listen = listen
        await self.vacant(self._vacant)

    async def vacant(self, places: frozenset[int]) -> None:
        """Take connections from these places, and from no others any longer."""
        self._vacant = places
        for place in [place for place in self._open if place not in places]:
            self._open.pop(place).close()
        for place in places & self._files.keys() - self._open.keys():
            if self._listen is not None:
                await self._take(place, self._listen)

    def close(self) -> None:
        """Take no more connections, and leave the sockets to others."""
        self._vacant, files, self._files = frozenset(), self._files, {}
        for listener in self._open.values():
            listener.close()
        self._open.clear()
        for file in files.values():
            os.close(file)

    async def _take(self, place: int, listen: Callable[[socket.socket], Awaitable[Listener]]) -> None:
        listener = await listen(socket.socket(fileno=os.dup(self._files[place])))
        if place in self._vacant and place not in self._open:
            self._open[place] = listener
        else:  # somebody serves there by now
            listener.close()
