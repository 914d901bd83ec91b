"""Somebody else on the event loop, to see whether others have their turns."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Other:
    """`turns`: how many it has had."""

    def __init__(self) -> None:
        self.turns = 0

    async def run(self) -> None:
        """Take every turn there is."""
        while True:
            self.turns += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def somebody_else() -> AsyncIterator[Other]:
    """Run one for as long as the block lasts."""
    other = Other()
    running = asyncio.create_task(other.run())
    try:
        yield other
    finally:
        running.cancel()
