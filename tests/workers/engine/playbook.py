"""Drives one rank without a clock: time is a number that jumps to the end of every step and every copy."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from workers.engine import control
from workers.engine.events import GPU, Cleared, Removed, Stored
from workers.engine.loops import LOOPS, role_of
from workers.engine.memory import TreeMemory
from workers.engine.namespace import PLAIN, Namespace
from workers.engine.rank import EngineConfig, Rank
from workers.engine.request import Request
from workers.engine.sequence import sequence_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from workers.engine.control import PauseMode
    from workers.engine.events import Batch, Event
    from workers.engine.hicache import HiCache
    from workers.engine.radix import RadixCache

_MOST_ITERATIONS = 5000
PAUSABLE = [name for name in LOOPS if name != "pipeline"]


class Playbook:
    """A rank and its loop; `published` is everything that would have been sent, in order.

    Prompts of a decode worker arrive at once, those of a prefill worker are asked for at once, unless
    `hands_over` is False.
    """

    def __init__(self, config: EngineConfig | None = None, *, loop: str = "normal", **changes: Any) -> None:
        self.rank = Rank(replace(config or EngineConfig(), role=role_of(loop), **changes))
        self.loop = LOOPS[loop](self.rank)
        self.now = 0.0
        self.published: list[Batch] = []
        self.hands_over = True
        self._ids = count(1)
        self._end: float | None = None

    def request(
        self, tokens: Sequence[int], max_new: int = 1, namespace: Namespace = PLAIN, **fields: Any
    ) -> Request:
        config, number = self.rank.config, next(self._ids)
        sequence = sequence_of(list(tokens), config.page_size, namespace, bigram=config.bigram)
        request = Request(f"r{number}", sequence, max_new, room=number, **fields)
        if self.hands_over:
            request.pull = lambda: control.arrive(self.rank, request, None)
            if self.rank.prefill is not None:
                self.rank.prefill.ask(number)
        control.submit(self.rank, request)
        return request

    def iterate(self) -> bool:
        """Run one iteration; return whether a batch is under way."""
        if self._end is not None:
            self.now = self._end
        self.loop.complete(self.now)
        self._end = self.loop.begin(self.now)
        self.published += self.rank.take_outbox()
        return self._end is not None

    def settle(self) -> None:
        """Iterate, waiting for copies to end too, until only a message can change things."""
        for _ in range(_MOST_ITERATIONS):
            if not (self.iterate() or self.wait_for_copy()):
                return
        raise AssertionError("the loop does not settle")

    def until(self, condition: Callable[[], object], *, copies: bool = True) -> None:
        """Iterate until a condition holds after a batch has ended, letting copies end when nothing runs."""
        for _ in range(_MOST_ITERATIONS):
            if condition():
                return
            if not self.iterate() and copies and not condition():
                self.wait_for_copy()
            self.complete()
        raise AssertionError("the condition did not come true")

    def wait_for_copy(self) -> bool:
        """Let time pass until the next copy under way has ended; return whether there is one."""
        ack = self.rank.next_ack
        if ack is None:
            return False
        self.now = max(self.now, ack)
        return True

    def run(
        self, tokens: Sequence[int], max_new: int = 1, namespace: Namespace = PLAIN, **fields: Any
    ) -> Request:
        request = self.request(tokens, max_new, namespace, **fields)
        self.settle()
        return request

    def complete(self) -> None:
        """End the batch that is waited for and start no other, so that a message can come in between."""
        if self._end is not None:
            self.now, self._end = self._end, None
        self.loop.complete(self.now)
        self.published += self.rank.take_outbox()

    def pause(self, mode: PauseMode) -> None:
        self.complete()
        control.pause(self.rank, mode, self.now)
        self.published += self.rank.take_outbox()

    def resume(self) -> None:
        control.resume(self.rank)

    def flush(self) -> bool:
        self.complete()
        return control.flush(self.rank)

    def events(self) -> list[Event]:
        return [event for batch in self.published for event in batch.events]

    @property
    def tree(self) -> RadixCache:
        assert isinstance(self.rank.memory, TreeMemory)
        return self.rank.memory.cache

    @property
    def hicache(self) -> HiCache:
        assert isinstance(self.rank.memory, TreeMemory)
        assert self.rank.memory.hicache is not None
        return self.rank.memory.hicache


def replayed_tiers(events: list[Event]) -> dict[str, list[int | bytes]]:
    """Return the blocks that a reader of all events believes each tier to hold, with copies, sorted."""
    tiers: dict[str, dict[int | bytes, int]] = {}
    for event in events:
        match event:
            case Stored():
                held = tiers.setdefault(event.medium, {})
                held.update({block: held.get(block, 0) + 1 for block in event.hashes})
            case Removed():
                held = tiers.setdefault(event.medium, {})
                held.update({block: held.get(block, 0) - 1 for block in event.hashes})
            case Cleared():
                tiers.clear()
    return {
        medium: sorted((block for block, copies in held.items() for _ in range(copies)), key=str)
        for medium, held in tiers.items()
        if any(held.values())
    }


def held_tiers(rank: Rank) -> dict[str, list[int | bytes]]:
    """Return the blocks that each tier really holds, with copies, sorted; empty tiers are left out."""
    return {medium: sorted(blocks, key=str) for medium, blocks in rank.memory.tiers().items() if blocks}


def replayed(events: list[Event]) -> list[int | bytes]:
    """Return the blocks that a reader of all events believes to be on the device, each once, sorted."""
    return sorted(set(replayed_tiers(events).get(GPU, [])), key=str)


def resident(rank: Rank) -> list[int | bytes]:
    return sorted(set(rank.memory.tiers()[GPU]), key=str)
