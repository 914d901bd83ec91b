"""The state of one rank (one DP rank = one cache), and the few steps everything else is made of.

`admission.py`, `results.py` and `control.py` hold the rules that act on it, `loops.py` the order in which
they run. Time is always an argument, in seconds of any clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from workers.engine.dialect import SGLANG, Dialect
from workers.engine.events import Batch, Cleared, EventQueue
from workers.engine.radix import RadixCache
from workers.engine.sampling import Sampler
from workers.engine.timing import PROFILES, Profile

if TYPE_CHECKING:
    from workers.engine.request import Request

PausedLoop: TypeAlias = Literal["legacy", "publishing"]
PUBLISH_EVERY_DECODE_STEPS = 40  # SGLang 0.5.23


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes in tokens; `paused_loop`: whether a paused SGLang iteration publishes what is queued."""

    dialect: Dialect = SGLANG
    page_size: int = 1
    capacity_tokens: int = 100_000
    chunk_tokens: int = 8192
    max_running: int = 256
    bigram: bool = False
    paused_loop: PausedLoop = "publishing"
    profile: Profile = PROFILES["fast"]
    sampler: Sampler = field(default_factory=lambda: Sampler(0, tuple(range(97, 123))))


@dataclass(slots=True)
class Counters:
    """Totals since the start of the process, for metrics."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    decode_steps: int = 0


class Rank:
    """Queues, cache and pending events of one rank."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.events = EventQueue(config.dialect.coalesces)
        self.cache = RadixCache(
            page_size=config.page_size,
            capacity_tokens=config.capacity_tokens,
            events=self.events,
            form=config.dialect.form,
            by_page=config.dialect.evicts_by_page,
        )
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.last_batch: list[Request] = []  # prefilled, to be merged into running
        self.chunked: Request | None = None
        self.paused = False
        self.promised = 0  # pages that running requests may still ask for
        self.counters = Counters()
        self.progress: list[Request] = []
        self.outbox: list[Batch] = []
        if config.dialect.announces_start:
            self.events.append(Cleared())

    def idle(self, *, ignore_waiting: bool = False) -> bool:
        """Return whether no request holds or may soon hold KV.

        Waiting requests of these loops never hold any: a retracted one has given its own back.
        """
        busy = self.running or self.last_batch or self.chunked
        return not busy and (ignore_waiting or not self.waiting)

    @property
    def longest(self) -> int:
        """The most tokens, prompt and output, that a request may have; a longer one would wait for ever.

        One page is kept back for the copy of a last page that is resident but has to be computed again.
        """
        return (self.cache.capacity - 1) * self.config.page_size

    def publish(self, now: float) -> None:
        """Move the pending events, if any, into one batch of the outbox."""
        if self.events.pending:
            self.outbox.append(Batch(now, self.events.take()))

    def take_outbox(self) -> list[Batch]:
        """Return the batches to send and forget them."""
        taken, self.outbox = self.outbox, []
        return taken

    def take_progress(self) -> list[Request]:
        """Return the requests that have news for their callers and forget them."""
        taken, self.progress = self.progress, []
        return taken

    def grow(self, request: Request) -> None:
        """Give a request the private pages that its computed tokens need."""
        size = self.config.page_size
        missing = -(-request.computed // size) - request.shared - request.private
        if missing > 0:
            self.cache.take(missing)
            request.private += missing
            request.promised -= missing
            self.promised -= missing

    def store(self, request: Request) -> None:
        """Put a request's full pages into the tree and hold them there instead of privately."""
        done = self.cache.insert(request.sequence, request.computed)
        pages = request.sequence.pages(request.computed)
        moved = max(0, pages - request.shared)
        self.cache.lock(done.node)
        if request.node is not None:
            self.cache.unlock(request.node)
        request.node, request.shared = done.node, request.shared + moved
        request.private -= moved
        self.cache.give(moved)

    def release(self, request: Request) -> None:
        """Take back everything a request holds; what it stored stays in the tree, unlocked."""
        if request.node is not None:
            self.cache.unlock(request.node)
        self.cache.give(request.private)
        self.promised -= request.promised
        request.node, request.shared, request.private, request.promised = None, 0, 0, 0
        request.computed = 0

    def end(self, request: Request, reason: str) -> None:
        """Finish a request and tell its caller."""
        self.release(request)
        request.finish = reason
        self.counters.finished += 1
        self.progress.append(request)
