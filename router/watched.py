"""Files that are followed: looked at a few times a second, and read once they have stood still for a look.

Half of a file that is being written is then not taken for the whole; who replaces it by a rename need not
care.
"""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

LOOK_SECONDS = 0.2
_AGAIN_SECONDS = 5.0
_log = logging.getLogger(__name__)


async def followed(path: str, turn: Callable[[str], Awaitable[object]]) -> None:
    """Wait for a file to change and read it, which is one `turn`, until cancelled.

    An error that nobody has thought of, such as no room for a thread, is said, and another turn comes soon.
    """
    while True:
        try:
            await turn(path)
        except Exception:  # noqa: BLE001 - no error is to end it
            _log.exception("%s could not be followed; what it said last holds", path)
            await asyncio.sleep(_AGAIN_SECONDS)


async def settled(path: str, seen: tuple[int, ...]) -> tuple[int, ...]:
    """Wait until a file is another than was `seen`, and the same for two looks; return its new stamp."""
    before = seen
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        now = stamp(path)
        if now == before != seen:
            return now
        before = now


def stamp(path: str) -> tuple[int, ...]:
    """Return what changes with a file, also when another one takes its place; () when there is none."""
    try:
        found = Path(path).stat()
    except OSError:
        return ()
    return found.st_mtime_ns, found.st_size, found.st_ino
