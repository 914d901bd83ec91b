"""The scheduler loops, one iteration at a time, driven from outside.

The driver calls `complete` when a batch has run its time, then applies the messages that have come, then
calls `begin`. A paused iteration only records; an iteration without a batch is idle and may publish. All
loops of SGLang 0.5.23 are here: seven that a pause stops, and the pipeline-parallel one that goes on.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeAlias

from workers.engine.leap import leap, quiet_until
from workers.engine.pairs import decode_only_step, prefill_step, unified_step
from workers.engine.pressure import INITIAL_RATIO
from workers.engine.rank import Launched
from workers.engine.results import process

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.admission import Step
    from workers.engine.rank import Rank, Role

    Source: TypeAlias = Callable[[Rank, float], Step | None]


class Loop(Protocol):
    """One scheduler loop over one rank."""

    def begin(self, now: float) -> float | None:
        """Start an iteration; return when its batch ends.

        None: only a message can change things, or the time `Rank.next_ack` says.
        """
        ...

    def complete(self, now: float) -> None:
        """Process the result that is due at `now`, if there is one."""
        ...


class NormalLoop:
    """Runs a batch and processes its result before it looks for messages again."""

    def __init__(self, rank: Rank, source: Source = unified_step, *, pausable: bool = True) -> None:
        self._rank = rank
        self._source = source
        self._pausable = pausable
        self._step: Step | None = None

    def begin(self, now: float) -> float | None:
        """Start an iteration (see `Loop`)."""
        rank = self._rank
        rank.advance(now)
        if rank.paused and self._pausable:
            record_paused(rank, now)
            return None
        rank.memory.reap(retry=True)
        self._step = self._source(rank, now)
        if self._step is None:
            on_idle(rank, now)
            return None
        return now + self._step.seconds

    def complete(self, now: float) -> None:
        """Process the batch in flight (see `Loop`)."""
        self._rank.advance(now)
        step, self._step = self._step, None
        if step is not None:
            process(self._rank, step, now)

    def leap(self, end: float, until: float) -> float | None:
        """Process the batch that ends at `end`, and plain decode steps after it that end by `until` (`leap`).

        Return when the batch then under way ends; `end` itself if there is nothing to leap over.
        """
        return end if self._step is None else leap(self._rank, self._step, end, until, self.begin)

    def quiet_until(self, end: float) -> float:
        """Return a time before which there will be no news, the batch under way ending at `end` (`leap`)."""
        return end if self._step is None else quiet_until(self._rank, self._step, end)


def _always(_step: Step) -> bool:
    return True


def _decodes(step: Step) -> bool:
    return bool(step.decode)


class OverlapLoop:
    """Launches a batch before it processes the result of the one before.

    `ahead`: over which batches it does so; the result of another one is awaited first.
    """

    def __init__(
        self, rank: Rank, source: Source = unified_step, *, ahead: Callable[[Step], bool] = _always
    ) -> None:
        self._rank = rank
        self._source = source
        self._ahead = ahead
        self._free_at = 0.0
        self._due = False

    def begin(self, now: float) -> float | None:
        """Start an iteration (see `Loop`)."""
        rank, queue = self._rank, self._rank.launched
        rank.advance(now)
        if rank.paused:
            record_paused(rank, now)
            return None
        rank.memory.reap(retry=True)
        fresh = self._launch(now) if all(self._ahead(entry.step) for entry in queue) else False
        if not queue:
            on_idle(rank, now)
            return None
        self._due = not fresh or len(queue) > 1
        return queue[0].end if self._due else now

    def _launch(self, now: float) -> bool:
        step = self._source(self._rank, now)
        if step is None:
            return False
        self._free_at = max(now, self._free_at) + step.seconds
        self._rank.launched.append(Launched(step, self._free_at))
        return True

    def complete(self, now: float) -> None:
        """Process the oldest result once a batch runs after it, or none will (see `Loop`)."""
        self._rank.advance(now)
        if self._due:
            self._due = False
            process(self._rank, self._rank.launched.popleft().step, now)


def record_paused(rank: Rank, now: float) -> None:
    """Record the state of a paused engine: the publishing loop also reaps, and sends what is queued.

    Prefetches that had no room are not tried again: a flush has to find the tables empty. A decode worker
    without a radix cache has nothing to reap. vLLM sends events only inside a step, so a paused one keeps
    them in either mode.
    """
    if rank.config.paused_loop == "legacy" or rank.config.dialect.publishes_every_step:
        return
    if rank.config.caches:
        rank.memory.reap(retry=False)
    rank.publish(now)


def on_idle(rank: Rank, now: float) -> None:
    """Publish what is left, if nothing at all is going on (SGLang 0.5.23; vLLM waits for the next step).

    What admission has learnt about the length of answers is forgotten then.
    """
    if rank.idle() and not rank.config.dialect.publishes_every_step:
        rank.new_token_ratio = INITIAL_RATIO
        rank.publish(now)


LOOPS: dict[str, Callable[[Rank], Loop]] = {
    "normal": NormalLoop,
    "overlap": OverlapLoop,
    "prefill": partial(NormalLoop, source=prefill_step),
    "prefill-overlap": partial(OverlapLoop, source=prefill_step),
    "decode": partial(NormalLoop, source=decode_only_step),
    "decode-overlap": partial(OverlapLoop, source=decode_only_step),
    "mlx-overlap": partial(OverlapLoop, ahead=_decodes),
    "pipeline": partial(NormalLoop, pausable=False),
}


def role_of(loop: str) -> Role:
    """Return what a loop does of a request."""
    if loop.startswith("prefill"):
        return "prefill"
    return "decode" if loop.startswith("decode") else "both"
