"""What lies between a cursor and its view: batches and resets in their order, applied in portions.

While any wait, or the view is busy with a large one, the sockets are held back, so that a burst waits in
ZMQ's bounded queue and not in the router's memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

from router.core.steps import Apply, Reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core.counts import StreamCounts
    from router.core.events import Batch
    from router.core.view import View
    from router.streams.notes import Notes
    from router.streams.turns import Turns

_BUSY_SECONDS = 0.002


class Feed:
    """`hold` is called with whether the sockets are to be held back, `on_restart` for each reset for one.

    `on_fault` is called when a batch could not be applied; the view is empty then.
    """

    def __init__(
        self,
        view: View,
        turns: Turns,
        counts: StreamCounts,
        notes: Notes,
        *,
        hold: Callable[[bool], object],
        on_restart: Callable[[], object] | None,
        on_fault: Callable[[], object],
    ) -> None:
        self.waits = False
        self._view = view
        self._turns = turns
        self._counts = counts
        self._notes = notes
        self._hold = hold
        self._on_restart = on_restart
        self._on_fault = on_fault
        self._pending: deque[Apply | Reset] = deque()
        self._closed = False
        self._loop = asyncio.get_running_loop()

    def add(self, step: Apply | Reset) -> None:
        """Have a step wait behind the others, until `go`."""
        self._pending.append(step)

    def go(self) -> None:
        """Apply what waits, as far as this turn of the loop allows, and the rest in the next ones."""
        if not self.waits and (self._pending or self._view.busy):
            self._drain()

    def at_once(self, batch: Batch) -> None:
        """Apply a batch that nothing waits before, and that clears nothing."""
        try:
            self._view.apply(batch)
        except Exception:  # noqa: BLE001 - see `_failed`
            self._failed()
        if self._view.busy:
            self._drain()

    def clear(self) -> None:
        """Drop what waits."""
        self._pending.clear()

    def drop_until_clear(self) -> bool:
        """Drop what waits before the last clear that waits; say whether there is one."""
        steps = enumerate(self._pending)
        clears = [at for at, step in steps if isinstance(step, Apply) and step.batch.clears]
        for _ in range(clears[-1] if clears else 0):
            self._pending.popleft()
        return bool(clears)

    def close(self) -> None:
        """Nothing reaches the view any more."""
        self._pending.clear()
        self._closed = True

    def _drain(self) -> None:
        self.waits = False
        if self._closed:
            return
        pending, view = self._pending, self._view
        until = self._turns.end()
        while pending and not view.busy and perf_counter() <= until:
            self._do(pending.popleft())
        if view.busy:
            self.waits = True
            self._loop.call_later(_BUSY_SECONDS, self._drain)
        elif pending:
            self.waits = True
            self._turns.later(self._drain)
        self._hold(self.waits)

    def _do(self, step: Apply | Reset) -> None:
        try:
            if isinstance(step, Reset):
                self._reset(step.cause)
            else:
                self._apply(step.batch, past=step.past)
        except Exception:  # noqa: BLE001 - see `_failed`
            self._failed()

    def _failed(self) -> None:
        """Whatever an engine sends, the stream goes on; what the batch has said is not known any more."""
        self._notes.failed()
        self._view.reset("fault")
        self._on_fault()

    def _apply(self, batch: Batch, *, past: bool) -> None:
        if batch.clears:
            self._counts.clears += 1
            if not past:
                self._notes.was_reset("all_blocks_cleared")
        self._view.apply(batch, past=past)

    def _reset(self, cause: str) -> None:
        self._notes.was_reset(cause)
        self._view.reset(cause)
        if cause == "restart" and self._on_restart is not None:
            self._on_restart()
