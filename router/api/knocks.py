"""Requests that are refused for who asks, as the log tells of them: at once, then once a minute at most.

None is left out: what a minute has brought is told when it is over, or when the router stops.
"""

from __future__ import annotations

import asyncio
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
    """`why` they are refused, such as "for want of a valid key". `clock` is in seconds.

    `later` calls back in so many seconds; of itself it is the running loop's.
    """

    __slots__ = ("_clock", "_later", "_lines", "_timer", "_untold", "_why")

    def __init__(
        self,
        why: str,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], asyncio.TimerHandle] | None = None,
    ) -> None:
        self._why = why
        self._clock = clock
        self._later = later or _later
        self._lines = Bucket(1 / _SAY_SECONDS, 1)
        self._timer: asyncio.TimerHandle | None = None
        self._untold = Counter[str]()

    def refused(self, who: str) -> None:
        """Count one more, by who asked. What was given is not told: it can be a key with a slip in it."""
        known = who in self._untold or len(self._untold) < _MOST_NAMED
        self._untold[who if known else _OTHERS] += 1
        if self._timer is None:
            self._tell_when_due()

    def close(self) -> None:
        """Tell what is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._tell()

    def _tell_when_due(self) -> None:
        wait = self._lines.take(1, self._clock())
        self._timer = self._later(wait, self._tell_when_due) if wait else None
        if self._timer is None:
            self._tell()

    def _tell(self) -> None:
        named = ", ".join(f"{who} ({count})" for who, count in self._untold.most_common())
        _log.warning("requests refused %s: %d, from %s", self._why, self._untold.total(), named)
        self._untold.clear()


def _later(seconds: float, call: Callable[[], None]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(seconds, call)
