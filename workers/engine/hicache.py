"""HiCache: copies of device pages on the host and in storage, and the four tables of copies under way.

Rules as SGLang 0.5.23's: a node stored often enough is written through to the host; a prompt that the host
holds is loaded back; a long prompt that no tier holds is looked for in storage when it is queued; what has
reached the host is backed up. A copy counts only once the scheduler has reaped its acknowledgement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.engine.node import Node, path, span
from workers.engine.storage import Storage
from workers.engine.transfers import Line

if TYPE_CHECKING:
    from workers.engine.radix import Match, RadixCache
    from workers.engine.request import Request


@dataclass(frozen=True, slots=True)
class TierConfig:
    """Sizes of host and storage in device sizes, thresholds in stores and tokens, bandwidths in bytes/s.

    `storage` 0: none. `write_through`: a node goes to the host when it has been stored that often.
    `load_back` and `prefetch`: fewer tokens are not worth it. `lookup`: seconds until storage answers.
    """

    host: float = 2.0
    storage: float = 0.0
    write_through: int = 1
    load_back: int = 10
    prefetch: int = 256
    bytes_per_token: int = 131_072
    host_bandwidth: float = 25e9
    storage_bandwidth: float = 2e9
    lookup: float = 0.001

    def host_seconds(self, tokens: int) -> float:
        """Return how long a copy between device and host takes."""
        return tokens * self.bytes_per_token / self.host_bandwidth

    def storage_seconds(self, tokens: int) -> float:
        """Return how long a copy between host and storage takes."""
        return tokens * self.bytes_per_token / self.storage_bandwidth


@dataclass(slots=True)
class Copy:
    """The last `pages` pages down to the end of a node, which may be split meanwhile."""

    node: Node
    pages: int

    @property
    def nodes(self) -> list[Node]:
        """The nodes that the pages are in now, top first."""
        return span(self.node, self.pages)


@dataclass(slots=True)
class Prefetch:
    """Pages first..end-1 of a request's prompt on their way from storage; `end == first`: not found."""

    request: Request
    first: int
    end: int


class HiCache:
    """The tables of one rank; `writes`, `loads`, `prefetches`, `backups` are WT, LB, PF and BK."""

    def __init__(self, config: TierConfig, cache: RadixCache) -> None:
        self.config = config
        self.cache = cache
        self.storage = Storage(int(cache.capacity * config.storage))
        self.writes: Line[Copy] = Line()
        self.loads: Line[Node] = Line()
        self.prefetches: Line[Prefetch] = Line()
        self.backups: Line[tuple[list[bytes], Copy]] = Line()
        self._fetching: set[Request] = set()
        self._retry: list[Request] = []

    @property
    def _lines(self) -> tuple[Line[Copy], Line[Node], Line[Prefetch], Line[tuple[list[bytes], Copy]]]:
        return self.writes, self.loads, self.prefetches, self.backups

    @property
    def idle(self) -> bool:
        """Whether nothing is under way and nothing waits to be reaped."""
        return all(len(line) == 0 for line in self._lines)

    @property
    def next_ack(self) -> float | None:
        """When the next copy in flight ends."""
        return min((line.next for line in self._lines if line.next is not None), default=None)

    def advance(self, now: float) -> None:
        """Let the device side acknowledge what has ended by now."""
        for line in self._lines:
            line.advance(now)

    def reap(self, now: float, *, retry: bool) -> None:
        """Take back what has been acknowledged; `retry`: also start prefetches that had no room before."""
        self._reap_writes(now)
        for node in self.loads.reap():
            self.cache.unlock(node)
        for prefetch in self.prefetches.reap():
            self._fetching.discard(prefetch.request)
            self.cache.insert_host(prefetch.request.sequence, prefetch.first, prefetch.end)
        for digests, copy in self.backups.reap():
            self.storage.put(digests)
            self.cache.unpin(copy.nodes)
        if retry:
            waiting, self._retry = self._retry, []
            for request in waiting:
                self.prefetch(request, now)

    def _reap_writes(self, now: float) -> None:
        for copy in self.writes.reap():
            nodes = copy.nodes
            self.cache.saved(nodes)
            self.cache.unlock(copy.node)
            if self.storage.capacity:
                self._back_up(copy, nodes, now)

    def _back_up(self, copy: Copy, nodes: list[Node], now: float) -> None:
        for node in nodes:
            node.pins += 1
        digests = [digest for node in nodes for digest in node.digests]
        self.backups.start((digests, copy), self.config.storage_seconds(self._tokens(copy.pages)), now)

    def count(self, node: Node, now: float) -> None:
        """Count a store of a node and all above it, and write through what has reached the threshold."""
        for above in reversed(list(path(node))):
            above.hits += 1
            if above.hits >= self.config.write_through and not (above.host or above.saving):
                self._write(above, now)

    def _write(self, node: Node, now: float) -> None:
        closed = node.parent is None or node.parent.holds_prefix_on_host
        if closed and self.cache.reserve(len(node.digests)):
            node.saving = True
            self.cache.lock(node)
            seconds = self.config.host_seconds(self._tokens(len(node.digests)))
            self.writes.start(Copy(node, len(node.digests)), seconds, now)

    def worth_loading(self, found: Match) -> bool:
        """Whether what only the host holds of a prompt is enough to be loaded back."""
        return self._tokens(found.host_pages) >= self.config.load_back

    def load(self, found: Match, now: float) -> float:
        """Load a prompt's host pages back; return when they will be there. The caller has made room."""
        self.cache.load(found)
        self.cache.lock(found.deepest)
        return self.loads.start(found.deepest, self.config.host_seconds(self._tokens(found.host_pages)), now)

    def prefetch(self, request: Request, now: float) -> None:
        """Look in storage for what no tier holds of a queued request, if that is long enough."""
        if not self.storage.capacity or request.finish is not None:
            return
        sequence = request.sequence
        found = self.cache.match(sequence.digests_of(len(sequence)))
        first = found.pages + found.host_pages
        long = len(sequence) - self._tokens(first) >= self.config.prefetch
        if not (long and found.deepest.holds_prefix_on_host):
            return
        pages = self.storage.leading(sequence.digests[first : sequence.pages(len(sequence))])
        pages = pages if self._tokens(pages) >= self.config.prefetch else 0
        if not self.cache.reserve(pages):
            self._retry.append(request)
            return
        self._fetching.add(request)
        seconds = self.config.lookup + self.config.storage_seconds(self._tokens(pages))
        self.prefetches.start(Prefetch(request, first, first + pages), seconds, now)

    def fetching(self, request: Request) -> bool:
        """Whether a queued request has to wait for its prefetch."""
        return request in self._fetching

    def _tokens(self, pages: int) -> int:
        return pages * self.cache.page_size

    def reset(self) -> None:
        """Forget all that is under way; what storage holds stays."""
        for line in self._lines:
            line.clear()
        self._fetching.clear()
        self._retry.clear()
