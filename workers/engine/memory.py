"""Where the KV of requests lives. What the scheduler asks of it, and the answer of SGLang: a radix tree.

The rest of an admitted prompt is promised to it. What it may be answered with is hoped for: a request is
admitted if all of its own and a share of everybody else's fits, and `pressure.py` says what happens when
they need more.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Protocol

from workers.engine.hicache import HiCache
from workers.engine.node import path
from workers.engine.radix import Match, RadixCache

if TYPE_CHECKING:
    from workers.engine.events import EventQueue
    from workers.engine.rank import EngineConfig
    from workers.engine.request import Request


# Tokens of its own output that a request has to have room for, SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION.
_CLIP_TOKENS = 4096


class Memory(Protocol):
    """The KV pool of one rank, in pages."""

    capacity: int
    promised: int  # to admitted prompts

    @property
    def room(self) -> int:
        """Pages that decoding may take now."""
        ...

    @property
    def held(self) -> int:
        """Pages that requests hold, shared or not."""
        ...

    @property
    def idle(self) -> bool:
        """Whether no copy between tiers is under way."""
        ...

    @property
    def next_ack(self) -> float | None:
        """When the next copy between tiers ends, if one is under way."""
        ...

    def advance(self, now: float) -> None:
        """Let time pass for copies between tiers."""
        ...

    def reap(self, *, retry: bool) -> None:
        """Take note of copies that have ended; `retry`: also start prefetches that had no room before."""
        ...

    def queued(self, request: Request) -> None:
        """Take note of a request that has joined the queue."""
        ...

    def ready(self, request: Request) -> bool:
        """Whether a queued request may be admitted as far as its prefetch goes."""
        ...

    def admit(self, request: Request, ratio: float) -> bool:
        """Lock a request's cached prefix and promise it the rest, if that fits.

        `ratio`: the share of their hoped-for output that others are left.
        """
        ...

    def short(self, request: Request, tokens: int) -> int:
        """Return how many pages a request lacks for the KV of so many tokens; less than 0: it has more."""
        ...

    def grow(self, request: Request) -> None:
        """Give a request the pages that its computed tokens need."""
        ...

    def store(self, request: Request, tokens: int, *, counts: bool = True) -> None:
        """Cache the full pages of a request's first tokens; `counts`: as a store of a whole prompt."""
        ...

    def release(self, request: Request) -> None:
        """Take back everything a request holds; what it has stored stays, unlocked."""
        ...

    def reset(self) -> None:
        """Empty every tier at once and say so; nothing may be in use."""
        ...

    def tiers(self) -> dict[str, list[int | bytes]]:
        """Return the event hashes of all blocks that each tier holds."""
        ...


class TreeMemory:
    """A radix tree, with HiCache below it if there are tiers. `caches` False: nothing is ever shared."""

    def __init__(self, config: EngineConfig, events: EventQueue) -> None:
        pages = config.capacity_tokens // config.page_size
        tiers = config.tiers
        self.capacity = pages
        self.promised = 0
        self.hoped = 0  # pages that admitted requests may be answered with
        self._holders = 0
        self._clip = -(-_CLIP_TOKENS // config.page_size)
        self.cache = RadixCache(
            page_size=config.page_size,
            capacity=pages,
            events=events,
            form=config.dialect.form,
            bigram=config.bigram,
            host_capacity=0 if tiers is None else int(pages * tiers.host),
        )
        self.hicache = None if tiers is None else HiCache(tiers, self.cache)
        self._caches = config.caches
        self._now = 0.0

    @property
    def held(self) -> int:
        """Pages that requests hold (see `Memory`)."""
        return self.capacity - self.cache.free - self.cache.evictable

    @property
    def idle(self) -> bool:
        """Whether the four tables are empty (see `Memory`)."""
        return self.hicache is None or self.hicache.idle

    @property
    def next_ack(self) -> float | None:
        """When the next copy ends (see `Memory`)."""
        return None if self.hicache is None else self.hicache.next_ack

    def advance(self, now: float) -> None:
        """Let time pass (see `Memory`)."""
        self._now = now
        if self.hicache is not None:
            self.hicache.advance(now)

    def reap(self, *, retry: bool) -> None:
        """Reap the four tables (see `Memory`)."""
        if self.hicache is not None:
            self.hicache.reap(self._now, retry=retry)

    def queued(self, request: Request) -> None:
        """Start a prefetch if one is due (see `Memory`)."""
        if self.hicache is not None:
            self.hicache.prefetch(request, self._now)

    def ready(self, request: Request) -> bool:
        """Whether no prefetch is under way (see `Memory`)."""
        return self.hicache is None or not self.hicache.fetching(request)

    @property
    def room(self) -> int:
        """Free and evictable pages without the promised ones (see `Memory`)."""
        return self.cache.free + self.cache.evictable - self.promised

    def room_beside_others(self, ratio: float) -> int:
        """Return the room without a share of the hoped-for pages, at least what a step under way takes."""
        return self.room - max(ceil(ratio * self.hoped), min(self.hoped, self._holders))

    def decides_by_room(self, request: Request) -> bool:
        """Whether nothing but `room_beside_others` keeps the first waiting request from being admitted."""
        return not request.holds_kv and (self.hicache is None or not self.hicache.storage.capacity)

    def wanted(self, request: Request) -> int:
        """Return the `room_beside_others` that a request needs to be admitted, while the tree is as it is.

        What it would share with nobody yet could no longer be evicted, so that counts, too.
        """
        found, _, need, output = self._fit(request)
        unlocked = sum(len(node.digests) for node in path(found.node) if not node.locks)
        return need + output + found.host_pages + unlocked

    def admit(self, request: Request, ratio: float) -> bool:
        """Lock, promise, and load back (see `Memory`)."""
        found, usable, need, output = self._fit(request)
        cache = self.cache
        cache.lock(found.node)
        if need + output + found.host_pages > self.room_beside_others(ratio):
            cache.unlock(found.node)
            return False
        self._load(request, found)
        request.node, request.shared = found.deepest, usable
        request.computed = usable * cache.page_size
        self._promise(request, need, output)
        return True

    def _fit(self, request: Request) -> tuple[Match, int, int, int]:
        """Return what is held of a request, and in pages: what it can use, what it needs, what it may answer.

        The whole prompt is looked up, so that a prompt that is resident to its end splits nothing; its
        last token is computed all the same.
        """
        cache, sequence = self.cache, request.sequence
        found = cache.match(sequence.digests_of(len(sequence)) if self._caches else [])
        if found.host_pages and (self.hicache is None or not self.hicache.worth_loading(found)):
            found = Match(found.node, found.pages, found.node)
        usable = min(found.pages + found.host_pages, sequence.pages(len(sequence) - 1))
        whole = -(-len(sequence) // cache.page_size)
        output = min(-(-(len(sequence) + request.left) // cache.page_size) - whole, self._clip)
        return found, usable, whole - usable, output

    def _promise(self, request: Request, prompt: int, output: int) -> None:
        request.promised, request.hoped = prompt, output
        self.promised += prompt
        self.hoped += output
        self._holders += 1

    def _load(self, request: Request, found: Match) -> None:
        """Bring in what only the host holds; leave the request's lock on the deepest node."""
        if self.hicache is None or not found.host_pages:
            return
        self.cache.make_room(found.host_pages)
        request.ready_at = self.hicache.load(found, self._now)
        self.cache.lock(found.deepest)
        self.cache.unlock(found.node)

    def grow(self, request: Request) -> None:
        """Give pages (see `Memory`)."""
        missing = self.short(request, request.computed)
        if missing <= 0:
            return
        self.cache.take(missing)
        request.private += missing
        promised = min(missing, request.promised)
        hoped = min(missing - promised, request.hoped)
        request.promised -= promised
        request.hoped -= hoped
        self.promised -= promised
        self.hoped -= hoped

    def short(self, request: Request, tokens: int) -> int:
        """Return what is missing of a request's pages (see `Memory`)."""
        return -(-tokens // self.cache.page_size) - request.shared - request.private

    def store(self, request: Request, tokens: int, *, counts: bool = True) -> None:
        """Move full pages into the tree and hold them there instead of privately (see `Memory`)."""
        if not self._caches:
            return
        node = self.cache.insert(request.sequence, tokens)
        moved = max(0, request.sequence.pages(tokens) - request.shared)
        self.cache.lock(node)
        if request.node is not None:
            self.cache.unlock(request.node)
        request.node, request.shared = node, request.shared + moved
        request.private -= moved
        self.cache.give(moved)
        if counts and self.hicache is not None:
            self.hicache.count(node, self._now)

    def release(self, request: Request) -> None:
        """Unlock and take back (see `Memory`)."""
        if request.node is None:
            return
        self.cache.unlock(request.node)
        self.cache.give(request.private)
        self.promised -= request.promised
        self.hoped -= request.hoped
        self._holders -= 1
        request.node, request.shared, request.private = None, 0, 0
        request.promised = request.hoped = 0
        request.computed = 0

    def reset(self) -> None:
        """Empty the tree, the host pool and the four tables (see `Memory`)."""
        self.cache.reset()
        if self.hicache is not None:
            self.hicache.reset()

    def tiers(self) -> dict[str, list[int | bytes]]:
        """Return what device and host hold (see `Memory`)."""
        return self.cache.tiers()
