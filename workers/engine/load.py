"""How busy a rank is: what SGLang's `/v1/loads` and its load socket say.

SGLang 0.5.23 sends a load after every prefill and after every fifth decode step. That a rank which goes
to wait sends what has changed since is ours: a reader would else take an idle engine for a busy one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from workers.engine.rank import Rank

EVERY_DECODE_STEPS = 5
_encode = msgspec.msgpack.Encoder().encode


@dataclass(frozen=True, slots=True)
class Load:
    """Requests and tokens of one rank now; `total_tokens` are those in use and those of queued prompts.

    `prefilled_tokens` and `prefill_busy_us` (microseconds) are totals since the start: their slopes give
    the speed of prefill.
    """

    running: int
    waiting: int
    used_tokens: int
    capacity_tokens: int
    waiting_uncached: int
    total_tokens: int
    max_running: int
    prefilled_tokens: int
    prefill_busy_us: int

    def stat(self, number: int) -> bytes:
        """Return the msgpack LoadStat of rank `number`."""
        return _encode(
            [
                "LoadStat",
                self.running,
                self.waiting,
                self.used_tokens,
                self.capacity_tokens,
                number,
                self.waiting_uncached,
                self.total_tokens,
                self.max_running,
                self.prefilled_tokens,
                self.prefill_busy_us,
            ]
        )


def load_of(rank: Rank) -> Load:
    """Return the load of a rank; O(requests)."""
    used = rank.memory.held * rank.config.page_size
    return Load(
        running=len(rank.requests()) - len(rank.waiting),
        waiting=len(rank.waiting),
        used_tokens=used,
        capacity_tokens=rank.memory.capacity * rank.config.page_size,
        waiting_uncached=sum(request.uncached for request in rank.waiting),
        total_tokens=used + sum(len(request.sequence) for request in rank.waiting),
        max_running=rank.config.max_running,
        prefilled_tokens=rank.counters.prefilled_tokens,
        prefill_busy_us=round(rank.counters.prefill_seconds * 1e6),
    )


class LoadReport:
    """When the load of a rank is due, and what it is then."""

    def __init__(self, rank: Rank, number: int) -> None:
        self._rank = rank
        self._number = number
        self._prefilled = -1
        self._decoded = 0
        self._said: Load | None = None

    def due(self, *, waits: bool) -> bytes | None:
        """Return the LoadStat to send after an iteration, None for nothing; `waits`: no batch follows it."""
        counters = self._rank.counters
        fresh = counters.prefilled_tokens != self._prefilled
        if not (fresh or waits or counters.decode_steps - self._decoded >= EVERY_DECODE_STEPS):
            return None
        load = load_of(self._rank)
        if not fresh and load == self._said:
            return None
        self._prefilled, self._decoded, self._said = counters.prefilled_tokens, counters.decode_steps, load
        return load.stat(self._number)
