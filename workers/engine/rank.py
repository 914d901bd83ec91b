"""The state of one rank (one DP rank = one cache), and the few steps everything else is made of.

`admission.py`, `results.py`, `pairs.py` and `control.py` hold the rules that act on it, `loops.py` the
order in which they run. Time is always an argument, in seconds of any clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from workers.engine.blocks import BlockMemory
from workers.engine.dialect import SGLANG, Dialect
from workers.engine.events import Batch, Cleared, EventQueue
from workers.engine.memory import Memory, TreeMemory
from workers.engine.pairs import DecodeSide, PrefillSide
from workers.engine.pressure import INITIAL_RATIO
from workers.engine.sampling import OneToken, Sampler
from workers.engine.timing import PROFILES, Profile

if TYPE_CHECKING:
    from workers.engine.admission import Step
    from workers.engine.hicache import TierConfig
    from workers.engine.request import Request

PausedLoop: TypeAlias = Literal["legacy", "publishing"]
Role: TypeAlias = Literal["both", "prefill", "decode"]


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes in tokens; `paused_loop`: whether a paused SGLang iteration reaps and publishes.

    `caches` False: a decode worker of a pair without a radix cache. `tiers`: what lies below the device.
    `transfer_bandwidth`: of KV from prefill to decode, bytes/s; `bytes_per_token` of KV.
    """

    dialect: Dialect = SGLANG
    page_size: int = 1
    capacity_tokens: int = 100_000
    chunk_tokens: int = 8192
    max_running: int = 256
    bigram: bool = False
    paused_loop: PausedLoop = "publishing"
    role: Role = "both"
    caches: bool = True
    tiers: TierConfig | None = None
    bytes_per_token: int = 131_072
    transfer_bandwidth: float = 25e9
    profile: Profile = PROFILES["fast"]
    sampler: Sampler | OneToken = field(default_factory=lambda: Sampler(0, tuple(range(97, 123))))

    def transfer_seconds(self, tokens: int) -> float:
        """Return how long the KV of so many tokens travels from prefill to decode."""
        return tokens * self.bytes_per_token / self.transfer_bandwidth


@dataclass(slots=True)
class Counters:
    """Totals since the start of the process; `prefill_seconds`: how long prefill batches ran."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    generated_tokens: int = 0
    finished: int = 0
    retracted: int = 0  # for want of memory
    decode_steps: int = 0
    prefilled_tokens: int = 0
    prefill_seconds: float = 0.0


@dataclass(slots=True)
class Launched:
    """A batch that runs, or has run until `end` without its result being processed."""

    step: Step
    end: float


class Rank:
    """Queues, memory and pending events of one rank; `prefill` and `decode` are its sides of pairs."""

    def __init__(self, config: EngineConfig) -> None:
        self.config = config
        self.events = EventQueue(config.dialect.coalesces)
        memory = BlockMemory if config.dialect.holds_blocks else TreeMemory
        self.memory: Memory = memory(config, self.events)
        receives = config.role == "decode" or config.dialect.holds_blocks
        self.prefill = PrefillSide(config.transfer_seconds) if config.role == "prefill" else None
        self.decode = DecodeSide() if receives else None
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.last_batch: list[Request] = []  # prompts launched to their end, to be merged into running
        self.chunked: Request | None = None
        self.launched: deque[Launched] = deque()  # the result queue of an overlapping loop
        self.kept: list[Request] = []  # ended, their KV is still to be fetched
        self.paused = False
        self.new_token_ratio = INITIAL_RATIO
        self.cleared: list[float] = []  # when every tier was emptied
        self._now = 0.0
        self.counters = Counters()
        self.progress: list[Request] = []
        self.outbox: list[Batch] = []
        if config.dialect.announces_start:
            self.events.append(Cleared())

    def advance(self, now: float) -> None:
        """Note the time, and let copies under way end by then."""
        self._now = now
        self.memory.advance(now)

    def clear(self) -> None:
        """Empty every tier and queue AllBlocksCleared; no request may hold KV."""
        self.memory.reset()
        self.cleared.append(self._now)

    def idle(self, *, ignore_waiting: bool = False) -> bool:
        """Return whether no request holds or may soon hold KV, and no copy between tiers is under way.

        With `ignore_waiting`, waiting requests that hold none are passed over: a retracted one has given
        its own back, one whose prompt has come from a prefill worker has not.
        """
        busy = self.running or self.last_batch or self.chunked or self.launched or self.kept
        if busy or not self.memory.idle:
            return False
        if not all(side is None or side.idle for side in (self.prefill, self.decode)):
            return False
        return not any(request.holds_kv or not ignore_waiting for request in self.waiting)

    @property
    def longest(self) -> int:
        """The most tokens, prompt and output, that a request may have; a longer one would wait for ever.

        One page is kept back for the copy of a last page that is resident but has to be computed again.
        """
        return (self.memory.capacity - 1) * self.config.page_size

    @property
    def next_ack(self) -> float | None:
        """When a copy or transfer under way ends, if that could change what the loop does."""
        transfer = None if self.prefill is None or self.paused else self.prefill.inflight.next
        return min((end for end in (self.memory.next_ack, transfer) if end is not None), default=None)

    def started(self) -> list[Request]:
        """Return the requests that have been scheduled and not ended, in the order they came.

        A prompt that a prefill worker computes to its end is nowhere else until its result is looked at.
        """
        computing = [] if self.prefill is None else self.prefill.computing
        chunked = [] if self.chunked is None else [self.chunked]
        return [*self.running, *self.last_batch, *computing, *chunked]

    def requests(self) -> list[Request]:
        """Return every request that has not ended, in any state."""
        queued: list[Request] = []
        if self.prefill is not None:
            queued += self.prefill.queued
        if self.decode is not None:
            queued += [*self.decode.prealloc, *self.decode.transfer, *self.decode.retracted]
        return [*self.waiting, *queued, *self.started()]

    def queue(self, request: Request, *, first: bool = False) -> None:
        """Let a request wait to be scheduled; a prefetch of what storage has of it may begin."""
        if first:
            self.waiting.appendleft(request)
        else:
            self.waiting.append(request)
        self.memory.queued(request)

    def give_back(self, request: Request, *, first: bool) -> None:
        """Take a request's own KV back and let it wait again; what the tree holds stays.

        A decode worker, which could not compute the prompt again, sets the request and its KV aside.
        """
        self.memory.release(request)
        if self.decode is None or self.config.role != "decode":
            self.queue(request, first=first)
        elif first:
            self.decode.retracted.insert(0, request)
        else:
            self.decode.retracted.append(request)

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

    def end(self, request: Request, reason: str) -> None:
        """Finish a request and tell its caller."""
        if request.keeps_kv and reason != "abort":
            self.kept.append(request)
        else:
            self.memory.release(request)
        request.finish = reason
        self.counters.finished += 1
        self.progress.append(request)
