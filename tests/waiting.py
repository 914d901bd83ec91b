"""Waiting for a condition instead of for a time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

DEADLINE_SECONDS = 30.0


async def until(condition: Callable[[], object], what: str = "the condition") -> None:
    """Return once `condition()` is true; fail after a deadline that no working machine reaches."""
    end = time.monotonic() + DEADLINE_SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not come true within {DEADLINE_SECONDS:g} s"
        await asyncio.sleep(0.005)


async def until_awaited(
    condition: Callable[[], Awaitable[object]], what: str = "the condition", seconds: float = DEADLINE_SECONDS
) -> None:
    """Do the same for a condition that has to be awaited."""
    end = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < end, f"{what} did not come true within {seconds:g} s"
        await asyncio.sleep(0.005)
