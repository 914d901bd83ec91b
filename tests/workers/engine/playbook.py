"""Drives one rank without a clock: time is a number that jumps to the end of every step."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

from workers.engine import control
from workers.engine.events import Cleared, Removed, Stored
from workers.engine.loops import NormalLoop
from workers.engine.namespace import PLAIN, Namespace
from workers.engine.rank import EngineConfig, Rank
from workers.engine.request import Request
from workers.engine.sequence import sequence_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers.engine.control import PauseMode
    from workers.engine.events import Batch, Event


class Playbook:
    """A rank and its loop; `published` is everything that would have been sent, in order."""

    def __init__(self, config: EngineConfig | None = None, **changes: Any) -> None:
        self.rank = Rank(replace(config or EngineConfig(), **changes))
        self.loop = NormalLoop(self.rank)
        self.now = 0.0
        self.published: list[Batch] = []
        self._ids = count()
        self._end: float | None = None

    def request(
        self, tokens: Sequence[int], max_new: int = 1, namespace: Namespace = PLAIN, **fields: Any
    ) -> Request:
        config = self.rank.config
        sequence = sequence_of(list(tokens), config.page_size, namespace, bigram=config.bigram)
        request = Request(f"r{next(self._ids)}", sequence, max_new, **fields)
        control.submit(self.rank, request)
        return request

    def iterate(self) -> bool:
        """Run one iteration; return whether a batch was started."""
        if self._end is not None:
            self.now = self._end
        self.loop.complete(self.now)
        self._end = self.loop.begin(self.now)
        self.published += self.rank.take_outbox()
        return self._end is not None

    def settle(self) -> None:
        """Iterate until only a message can change things."""
        while self.iterate():
            pass

    def run(self, tokens: Sequence[int], max_new: int = 1, namespace: Namespace = PLAIN) -> Request:
        request = self.request(tokens, max_new, namespace)
        self.settle()
        return request

    def complete(self) -> None:
        """End the batch in flight without starting another, so that a message can come in between."""
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


def replayed(events: list[Event]) -> list[int | bytes]:
    """Return the blocks that a reader of all events believes to be resident, sorted."""
    blocks: set[int | bytes] = set()
    for event in events:
        match event:
            case Stored():
                blocks.update(event.hashes)
            case Removed():
                blocks.difference_update(event.hashes)
            case Cleared():
                blocks.clear()
    return sorted(blocks, key=str)


def resident(rank: Rank) -> list[int | bytes]:
    return sorted(rank.cache.hashes(), key=str)
