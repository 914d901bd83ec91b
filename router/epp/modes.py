"""Which bodies Envoy sends: the choice needs all of them, before anything of the request has gone on.

With NONE no body comes, with STREAMED the headers go on before it, with BUFFERED_PARTIAL it may be cut.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from router.core.bucket import Bucket
from router.errors import WrongBodyMode

if TYPE_CHECKING:
    from collections.abc import Callable

BUFFERED, FULL_DUPLEX = 2, 4  # of BodySendMode; the latter is FULL_DUPLEX_STREAMED
_OTHERS = {0: "NONE", 1: "STREAMED", 3: "BUFFERED_PARTIAL"}
_SAY_SECONDS = 60.0
_log = logging.getLogger(__name__)


class Modes:
    """Refuses what cannot work, and tells the log at most once a minute. `clock` is in seconds."""

    __slots__ = ("_clock", "_lines")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lines = Bucket(1 / _SAY_SECONDS, 1)

    def check(self, mode: int | None) -> None:
        """Raise WrongBodyMode for one that cannot work; None: an older Envoy does not say which it is."""
        if mode is None or mode in {BUFFERED, FULL_DUPLEX}:
            return
        error = WrongBodyMode(
            f"Envoy's processing_mode has request_body_mode {_OTHERS.get(mode, mode)}: expected "
            "FULL_DUPLEX_STREAMED or BUFFERED, without which no endpoint can be picked"
        )
        if not self._lines.take(1, self._clock()):
            _log.warning("%s", error.message)
        raise error
