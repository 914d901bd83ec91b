"""Where the KV of requests lives on vLLM 0.32: single blocks, one queue of free ones, copies by hash.

A block gets its hash as soon as it is full and keeps it when its request has gone, until the queue of free
blocks brings it to somebody else. Requests that fill equal blocks at once each keep their own copy: one
hash is then stored several times, and removed as often.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from workers.engine.events import GPU, OFFLOADED, Cleared, Removed, Stored
from workers.engine.offload import Offload
from workers.engine.sequence import token_ids

if TYPE_CHECKING:
    from workers.engine.events import EventQueue
    from workers.engine.rank import EngineConfig
    from workers.engine.request import Request


@dataclass(slots=True, eq=False)
class Block:
    """One physical block; `digest` of what it holds once it is full, `users` the requests that hold it."""

    digest: bytes | None = None
    users: int = 0


class BlockMemory:
    """The block pool of one rank (see `Memory`)."""

    def __init__(self, config: EngineConfig, events: EventQueue) -> None:
        self.capacity = config.capacity_tokens // config.page_size
        self.promised = 0
        self.offload = None if config.tiers is None else Offload(config, events)
        self._page_size = config.page_size
        self._form = config.dialect.form
        self._events = events
        self._fresh = self.capacity  # blocks that nobody has held yet, and that are made when somebody does
        self._free: OrderedDict[Block, None] = OrderedDict()
        self._copies: dict[bytes, deque[Block]] = {}
        self._now = 0.0

    @property
    def held(self) -> int:
        """Blocks that requests hold (see `Memory`)."""
        return self.capacity - self._spare

    @property
    def _spare(self) -> int:
        return self._fresh + len(self._free)

    @property
    def room(self) -> int:
        """Free blocks without the promised ones (see `Memory`)."""
        return self._spare - self.promised

    @property
    def idle(self) -> bool:
        """Always: a reset asks for requests only (see `Memory`)."""
        return True

    @property
    def next_ack(self) -> float | None:
        """Nothing: what a connector has done is looked at in steps only (see `Memory`)."""
        return None

    def advance(self, now: float) -> None:
        """Let time pass (see `Memory`)."""
        self._now = now

    def reap(self, *, retry: bool) -> None:  # noqa: ARG002 there are no prefetches here
        """Announce what has been offloaded (see `Memory`)."""
        if self.offload is not None:
            self.offload.reap(self._now)

    def queued(self, request: Request) -> None:
        """Nothing happens before a request is scheduled (see `Memory`)."""

    def ready(self, request: Request) -> bool:  # noqa: ARG002 as above
        """Always (see `Memory`)."""
        return True

    def admit(self, request: Request, ratio: float) -> bool:  # noqa: ARG002 nothing is kept for output
        """Hold the cached prefix and promise the rest of the prompt, if it fits (see `Memory`)."""
        sequence = request.sequence
        digests = [] if request.ignores_cache else sequence.digests_of(len(sequence) - 1)
        hits = self._hits(digests)
        loads = 0 if self.offload is None else self.offload.leading(digests[len(hits) :])
        need = -(-len(sequence) // self._page_size) - len(hits)
        unused = sum(block.users == 0 for block in hits)
        if need > self.room - unused:
            return False
        self._hold(hits)
        request.blocks, request.promised = hits, need
        request.shared = len(hits)
        self.promised += need
        request.computed = len(hits) * self._page_size
        self._announce_hits(request, len(hits))
        self._load(request, loads)
        return True

    def _hits(self, digests: list[bytes]) -> list[Block]:
        hits: list[Block] = []
        for digest in digests:
            copies = self._copies.get(digest)
            if not copies:
                break
            hits.append(copies[0])
        return hits

    def _hold(self, blocks: list[Block]) -> None:
        for block in blocks:
            self._free.pop(block, None)
            block.users += 1

    def _announce_hits(self, request: Request, count: int) -> None:
        """Tell of a hit again if the request asks for it: `kv_cache_report_mode` full."""
        if request.reports_hits and count:
            self._announce(request, 0, count)

    def _load(self, request: Request, pages: int) -> None:
        """Bring in blocks that only the connector holds; they are stored on the device with that."""
        if self.offload is None or not pages:
            return
        request.computed += pages * self._page_size
        request.ready_at = self.offload.load(pages, self._now)
        self.grow(request)
        self.store(request, request.computed)

    def grow(self, request: Request) -> None:
        """Take free blocks, the one that has been free longest first (see `Memory`)."""
        missing = self.short(request, request.computed)
        for _ in range(missing):
            block = self._take()
            block.users = 1
            request.blocks.append(block)
        promised = min(max(0, missing), request.promised)
        request.promised -= promised
        self.promised -= promised

    def short(self, request: Request, tokens: int) -> int:
        """Return what is missing of a request's blocks (see `Memory`)."""
        return -(-tokens // self._page_size) - len(request.blocks)

    def _take(self) -> Block:
        if self._fresh:
            self._fresh -= 1
            return Block()
        block, _ = self._free.popitem(last=False)
        self._forget(block)
        return block

    def _forget(self, block: Block) -> None:
        if block.digest is None:
            return
        copies = self._copies[block.digest]
        copies.remove(block)
        if not copies:
            del self._copies[block.digest]
        self._events.append(Removed([self._form(block.digest)]))
        block.digest = None

    def store(self, request: Request, tokens: int, *, counts: bool = True) -> None:  # noqa: ARG002 see `Memory`
        """Give full blocks their hash (see `Memory`); `request.shared` is how many have one."""
        digests = request.sequence.digests_of(tokens)
        first = request.shared = self._still_hashed(request)
        if len(digests) <= first:
            return
        for block, digest in zip(request.blocks[first:], digests[first:], strict=False):
            block.digest = digest
            self._copies.setdefault(digest, deque()).append(block)
        request.shared = len(digests)
        self._announce(request, first, len(digests))
        if self.offload is not None:
            self.offload.save(digests[first:], self._now)

    def _still_hashed(self, request: Request) -> int:
        """Return how many leading blocks have a hash: a reset has taken those of blocks in use too."""
        if not request.shared or request.blocks[request.shared - 1].digest is not None:
            return request.shared
        return sum(1 for _ in takewhile(lambda block: block.digest is not None, request.blocks))

    def _announce(self, request: Request, first: int, end: int) -> None:
        sequence = request.sequence
        self._events.append(
            Stored(
                hashes=[self._form(digest) for digest in sequence.digests[first:end]],
                parent=self._form(sequence.digests[first - 1]) if first else None,
                token_ids=token_ids(sequence.span(first, end), bigram=False),
                block_size=self._page_size,
                namespace=sequence.namespace,
                session_id=request.session_id,
            )
        )

    def release(self, request: Request) -> None:
        """Free the blocks, those of the prompt's end first; one without a hash is the next to be taken."""
        for block in reversed(request.blocks):
            block.users -= 1
            if not block.users:
                self._free[block] = None
                self._free.move_to_end(block, last=block.digest is not None)
        self.promised -= request.promised
        request.blocks, request.shared, request.promised, request.computed = [], 0, 0, 0

    def reset(self) -> None:
        """Take every hash back; blocks in use keep what they hold and get one again (see `Memory`)."""
        for copies in self._copies.values():
            for block in copies:
                block.digest = None
        self._copies.clear()
        if self.offload is not None:
            self.offload.reset()
        self._events.append(Cleared())

    def tiers(self) -> dict[str, list[int | bytes]]:
        """Return the hash of every block that has one, copies included (see `Memory`)."""
        blocks = [self._form(digest) for digest, copies in self._copies.items() for _ in copies]
        offloaded = [] if self.offload is None else [self._form(digest) for digest in self.offload.digests]
        return {GPU: blocks, OFFLOADED: offloaded}
