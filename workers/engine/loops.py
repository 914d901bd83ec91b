"""The scheduler loop, one iteration at a time, driven from outside.

The driver calls `complete` when a batch has run its time, then applies the messages that have come, then
calls `begin`. A paused iteration only records; an iteration without a batch is idle and may publish.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from workers.engine.admission import next_step
from workers.engine.results import process

if TYPE_CHECKING:
    from workers.engine.admission import Step
    from workers.engine.rank import Rank


class Loop(Protocol):
    """One scheduler loop over one rank."""

    def begin(self, now: float) -> float | None:
        """Start an iteration; return when its batch ends, or None when only a message can change things."""
        ...

    def complete(self, now: float) -> None:
        """Process the result of the batch that ended at `now`, if there is one."""
        ...


class NormalLoop:
    """Runs a batch and processes its result before it looks for messages again."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._step: Step | None = None

    def begin(self, now: float) -> float | None:
        """Start an iteration (see `Loop`)."""
        if self._rank.paused:
            record_paused(self._rank, now)
            return None
        self._step = next_step(self._rank)
        if self._step is None:
            on_idle(self._rank, now)
            return None
        return now + self._step.seconds

    def complete(self, now: float) -> None:
        """Process the batch in flight (see `Loop`)."""
        step, self._step = self._step, None
        if step is not None:
            process(self._rank, step, now)


def record_paused(rank: Rank, now: float) -> None:
    """Record the state of a paused engine: the publishing loop also sends what is queued.

    vLLM sends events only inside a step, so a paused one keeps them in either mode.
    """
    if rank.config.paused_loop == "publishing" and not rank.config.dialect.publishes_every_step:
        rank.publish(now)


def on_idle(rank: Rank, now: float) -> None:
    """Publish what is left, if nothing at all is going on (SGLang 0.5.23; vLLM waits for the next step)."""
    if rank.idle() and not rank.config.dialect.publishes_every_step:
        rank.publish(now)
