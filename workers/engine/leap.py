"""Many decode steps at once, where a step changes nothing but the length of answers.

In virtual time most iterations are decode steps between which nobody comes, ends, is admitted or retracted.
`leap` carries out as many of them as are of that kind and leaves the others to the loop. The rank is
afterwards exactly as if the loop had run each of them: same tokens, same evictions in the same order, same
batches at the same times, same clock to the last bit. Only over a radix tree, and for a loop that processes
each result before it looks for messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from workers.engine.memory import TreeMemory
from workers.engine.pressure import MOST_PAGES, decayed
from workers.engine.results import PUBLISH_EVERY_DECODE_STEPS, draw_many

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workers.engine.admission import Step
    from workers.engine.rank import Rank
    from workers.engine.request import Request

    Growing: TypeAlias = Sequence[tuple[Request, int]]

# Sums of floats differ in their last bits by the order of adding.
_MARGIN = 1e-9


def leap(
    rank: Rank, step: Step, end: float, until: float, begin: Callable[[float], float | None]
) -> float | None:
    """Process decode steps, of which `step` ends at `end`, while they end by `until`; `begin` is the loop's.

    Return when the batch ends that is then under way, as `begin` does; `end` itself if there was no such
    step. About 0.3 us a step and 0.2 us a token.
    """
    memory = rank.memory
    if end > until or not isinstance(memory, TreeMemory) or not _is_plain(rank, step):
        return end
    most = min(request.left for request in step.decode) - 1
    if step.seconds:
        most = min(most, int((until - end) / step.seconds) + 2)
    return _Run(rank, memory, step).take(end, until, most, begin) if most > 0 else end


def _is_plain(rank: Rank, step: Step) -> bool:
    """Return whether a step decodes all that runs, for nobody who wants to hear of every token."""
    if step.decode is not rank.running or rank.last_batch or rank.chunked is not None or rank.paused:
        return False
    if rank.config.dialect.publishes_every_step or rank.config.role != "both":
        return False
    return not any(request.eager or request.aborted for request in step.decode)


def growth(requests: list[Request], size: int, steps: int) -> Mapping[int, Growing]:
    """Return who begins a page of `size` tokens in which of the next steps, and has how many tokens then."""
    due: dict[int, list[tuple[Request, int]]] = {}
    for request in requests:
        for step in range(-request.computed % size + 1, steps + 1, size):
            due.setdefault(step, []).append((request, request.computed + step))
    return due


class _Run:
    """One leap of a rank."""

    def __init__(self, rank: Rank, memory: TreeMemory, step: Step) -> None:
        self._rank, self._memory, self._step = rank, memory, step
        self._spare = MOST_PAGES * len(step.decode)
        self._ack = memory.next_ack
        self._resident = memory.cache.resident
        waits = rank.waiting and len(rank.running) < rank.config.max_running
        self._knows = not waits or memory.decides_by_room(rank.waiting[0])
        self._wanted = memory.wanted(rank.waiting[0]) if waits and self._knows else None

    def take(
        self, end: float, until: float, most: int, begin: Callable[[float], float | None]
    ) -> float | None:
        """Take up to `most` steps."""
        rank, seconds = self._rank, self._step.seconds
        due = growth(self._step.decode, rank.config.page_size, most)
        taken = 0
        while end <= until and taken < most:
            taken += 1
            self._process(due.get(taken, ()), end)
            if not self._goes_on(end):
                self._settle(taken)
                return begin(end)
            rank.new_token_ratio = decayed(rank.new_token_ratio)
            end += seconds
        self._settle(taken)
        return end

    def _process(self, growing: Growing, end: float) -> None:
        for request, computed in growing:
            request.computed = computed
            self._memory.grow(request)
        self._rank.counters.decode_steps += 1
        if self._rank.counters.decode_steps % PUBLISH_EVERY_DECODE_STEPS == 0:
            self._rank.publish(end)

    def _goes_on(self, now: float) -> bool:
        """Return whether the iteration that begins now is sure to be the same decode step again."""
        memory = self._memory
        if (self._ack is not None and self._ack <= now) or memory.room < self._spare or not self._knows:
            return False
        if self._wanted is None:
            return True
        unchanged = memory.cache.resident == self._resident  # an eviction may have been of what it would hit
        return unchanged and self._wanted > memory.room_beside_others(self._rank.new_token_ratio)

    def _settle(self, steps: int) -> None:
        """Let every request have the tokens of the steps taken; the last of each has no KV yet."""
        for request in self._step.decode:
            request.computed = len(request.sequence) - 1 + steps
            draw_many(self._rank, request, steps)


def quiet_until(rank: Rank, step: Step, end: float) -> float:
    """Return a time before which the loop, whose batch `step` ends at `end`, has nothing to tell anybody.

    A lower bound: neither events are published nor does a request answer or end before, unless a message
    comes. O(requests).
    """
    memory = rank.memory
    if not isinstance(memory, TreeMemory) or rank.waiting or not _is_plain(rank, step):
        return end
    size, count = rank.config.page_size, len(step.decode)
    steps = min(request.left for request in step.decode)
    if rank.events.pending or not memory.idle or memory.cache.free < count * (steps // size + 1):
        steps = min(
            steps, PUBLISH_EVERY_DECODE_STEPS - rank.counters.decode_steps % PUBLISH_EVERY_DECODE_STEPS
        )
    if memory.room < count * (steps // size + 1 + MOST_PAGES):
        return end
    return end + (steps - 1) * step.seconds * (1 - _MARGIN)
