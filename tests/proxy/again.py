"""Asking again for an answer that was lost: a server that has refused waits for its client for a moment."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


async def until_heard(ask: Callable[[], Awaitable[bytes]]) -> bytes:
    """Return what is answered; the kernel drops it when the server has gone before all was written."""
    for _ in range(5):
        with contextlib.suppress(ConnectionError):
            return await ask()
    raise AssertionError("each answer was lost")
