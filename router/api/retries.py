"""Whether a request may be sent once more: only as long as retries are few beside requests."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from router.core.budget import RetryBudget

if TYPE_CHECKING:
    from router.observe.metrics import Metrics


class Retries:
    """The retries of all requests of the process: `most` of one; `share` and `floor` as in `core.budget`."""

    def __init__(self, metrics: Metrics, *, most: int, share: float, floor: float) -> None:
        self.most = most
        self._metrics = metrics
        self._clock = asyncio.get_running_loop().time
        self._budget = RetryBudget(share, floor, self._clock())

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
