"""Requests whose key is missing or wrong, as the log tells of them: at once, then once a minute at most."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from router.core.bucket import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable

_SAY_SECONDS = 60.0
_MOST_NAMED = 8
_OTHERS = "others"
_log = logging.getLogger(__name__)


class Knocks:
    """`key` is what is needed, such as "client's key". `clock` is in seconds."""

    __slots__ = ("_clock", "_key", "_lines", "_untold")

    def __init__(self, key: str, clock: Callable[[], float]) -> None:
        self._key = key
        self._clock = clock
        self._lines = Bucket(1 / _SAY_SECONDS, 1)
        self._untold = Counter[str]()

    def refused(self, who: str) -> None:
        """Count one more, by who asked. What was given is not told: it can be a key with a slip in it."""
        known = who in self._untold or len(self._untold) < _MOST_NAMED
        self._untold[who if known else _OTHERS] += 1
        if not self._lines.take(1, self._clock()):
            named = ", ".join(f"{who} ({count})" for who, count in self._untold.most_common())
            total = self._untold.total()
            _log.warning("requests refused for want of a valid %s: %d, from %s", self._key, total, named)
            self._untold.clear()
