"""Whether a request may be sent once more: only as long as retries are few beside requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from router.core.budget import RetryBudget
from router.proxy.drive import in_task

if TYPE_CHECKING:
    from random import Random

    from router.observe.metrics import Metrics


# How often a request may be written to a worker, whatever became of it there.
_MOST_SENDS = 2
# Seconds that a request which has failed waits before it goes to the same worker again; drawn at random, so
# that those that have failed together do not come back together.
_PAUSE = 0.02, 0.1


class Retries:
    """The retries of all requests of the process: `most` of one; `share` and `floor` as in `core.budget`."""

    def __init__(self, metrics: Metrics, *, most: int, share: float, floor: float) -> None:
        self._most = most
        self._metrics = metrics
        self._clock = asyncio.get_running_loop().time
        self._budget = RetryBudget(share, floor, self._clock())

    def adjust(self, *, most: int, share: float, floor: float) -> None:
        """Hold to other numbers from now on."""
        self._most = most
        self._budget.adjust(share, floor)

    def over(self, attempts: int, sends: int) -> bool:
        """Say whether a request has had what one may have: tries, or times written to a worker."""
        return attempts > self._most or sends >= _MOST_SENDS

    async def pause(self, rng: Random) -> None:
        """Wait a moment before the same worker is tried again."""
        await in_task()
        await asyncio.sleep(rng.uniform(*_PAUSE))

    def granted(self, *, free: bool = False) -> bool:
        """Say whether one more may be made, and count it.

        `free`: whatever there has been, because the request has certainly not been worked on: its connection
        had been closed before it came.
        """
        metrics = self._metrics
        choices = sum(metrics.decisions.values())
        if not free and not self._budget.take(choices - metrics.retries, self._clock()):
            metrics.retries_refused += 1
            return False
        metrics.retries += 1
        return True
