"""SIGHUP, which ends a process that has not said otherwise: held back until there is somebody to take it.

Rule of the module: it imports next to nothing, for it is wanted before anything that takes long to import.
"""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable


def hold_hangups() -> None:
    """Hold SIGHUP back from now on; of several that come one is kept."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})


def take_hangups(loop: AbstractEventLoop, take: Callable[[], None]) -> None:
    """Have `take` called for each SIGHUP, also for one that was held back. From the main thread only."""
    loop.add_signal_handler(signal.SIGHUP, take)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGHUP})
