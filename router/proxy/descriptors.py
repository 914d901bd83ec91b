"""File descriptors, of which a process has so many: noticing that there are none left, and saying so."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket

from router.core.bucket import Bucket

_LOOK_SECONDS, _SAY_SECONDS = 1.0, 60.0
_MISSING = frozenset({errno.EMFILE, errno.ENFILE})
_log = logging.getLogger(__name__)


class Descriptors:
    """Looks once a second, about 5 us, since a client that waits to be let in shows nowhere else.

    One line a minute at most. Needs a running loop; must be closed.
    """

    __slots__ = ("_lines", "_loop", "_timer")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines = Bucket(1 / _SAY_SECONDS, 1)
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)

    def close(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def missing(self) -> None:
        """Take note that one was asked for in vain."""
        if not self._lines.take(1, self._loop.time()):
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            _log.error(
                "no file descriptor is left (ulimit -n is %d): new clients wait, workers are not reached; "
                "a request under way takes two",
                most,
            )

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_SECONDS, self._look)
        if not any_left():
            self.missing()


def any_left() -> bool:
    """Say whether one is left."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        return error.errno not in _MISSING
    return True


def are_missing(error: Exception) -> bool:
    """Say whether a connection has failed for want of one; looking up a name does not tell that by itself."""
    if isinstance(error, socket.gaierror):
        return not any_left()
    return isinstance(error, OSError) and error.errno in _MISSING
