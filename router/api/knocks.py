"""Requests whose key is missing or wrong, as the log tells of them: at once, then once a minute at most."""

from __future__ import annotations

import logging
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_SAY_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Knocks:
    """`key` is what is needed, such as "client's key". `clock` is in seconds."""

    __slots__ = ("_clock", "_key", "_said", "_untold")

    def __init__(self, key: str, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock
        self._said = -inf
        self._untold = 0

    def refused(self) -> None:
        """Count one more. What was given is not told: it can be a key with a slip in it."""
        self._untold += 1
        now = self._clock()
        if now - self._said >= _SAY_SECONDS:
            _log.warning("requests refused for want of a valid %s: %d", self._key, self._untold)
            self._said, self._untold = now, 0
