"""Requests whose key is missing or wrong, as the log tells of them: at once, then once a minute at most."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from router.core.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable

_SAY_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Knocks:
    """`key` is what is needed, such as "client's key". `clock` is in seconds."""

    __slots__ = ("_clock", "_key", "_lines", "_untold")

    def __init__(self, key: str, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock
        self._lines = Bucket(1 / _SAY_SECONDS, 1)
        self._untold = 0

    def refused(self) -> None:
        """Count one more. What was given is not told: it can be a key with a slip in it."""
        self._untold += 1
        if not self._lines.take(1, self._clock()):
            _log.warning("requests refused for want of a valid %s: %d", self._key, self._untold)
            self._untold = 0
