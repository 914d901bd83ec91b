"""Files that are followed: looked at a few times a second, and read once they have stood still for a look.

Half of a file that is being written is then not taken for the whole; who replaces it by a rename need not
care.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

LOOK_SECONDS = 0.2


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
