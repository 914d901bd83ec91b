"""Live batches that wait for a replay: in order, and no more of them than the bounds allow."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.events import Batch


class Holding:
    """At most `batches` batches and `bytes_` bytes; what is over is not kept, and is a gap later on."""

    __slots__ = ("_batches", "_bytes", "_held", "_size")

    def __init__(self, batches: int, bytes_: int) -> None:
        self._batches = batches
        self._bytes = bytes_
        self._held: deque[tuple[int, Batch, int]] = deque()
        self._size = 0

    def __len__(self) -> int:
        return len(self._held)

    def has_begun(self, seq: int) -> bool:
        """Say whether batches that wait begin with this one or before it."""
        return bool(self._held) and self._held[0][0] <= seq

    def add(self, seq: int, batch: Batch, size: int) -> None:
        """Keep a batch of `size` bytes behind the others, if there is room."""
        if len(self._held) < self._batches and self._size + size <= self._bytes:
            self._held.append((seq, batch, size))
            self._size += size

    def put_back(self, seq: int, batch: Batch) -> None:
        """Keep a batch before the others; there is room for the one that was taken last."""
        self._held.appendleft((seq, batch, 0))

    def take(self) -> tuple[int, Batch]:
        """Return the first batch and let go of it."""
        seq, batch, size = self._held.popleft()
        self._size -= size
        return seq, batch

    def clear(self) -> None:
        """Let go of all."""
        self._held.clear()
        self._size = 0
