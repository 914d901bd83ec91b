"""A paged radix cache of one rank: what is resident, what is locked, what goes first.

Nodes hold runs of page digests. Since a digest names its whole prefix, one comparison at the end of a run
decides the run, and namespaces need no trees of their own. A match or a split emits nothing; a new node
emits Stored, an evicted one Removed. Sizes are pages throughout; order of use is a counter, not a clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING

from workers.engine.events import Cleared, EventQueue, Removed, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.engine.hashes import HashForm
    from workers.engine.sequence import Sequence


@dataclass(slots=True, eq=False)
class Node:
    """A run of pages that is always used together; `locks` counts the requests using it or below it."""

    digests: list[bytes]
    parent: Node | None
    children: dict[bytes, Node] = field(default_factory=dict)
    locks: int = 0
    used: int = 0
    queued: bool = False


@dataclass(slots=True)
class Match:
    """The deepest node on a prompt's path and the pages down to its end."""

    node: Node
    pages: int


def _common(run: list[bytes], digests: list[bytes], at: int) -> int:
    """Return how many leading digests of `run` equal those from `at`; O(1) when all do, else O(log n)."""
    low, high = 0, min(len(run), len(digests) - at)
    if run[high - 1] == digests[at + high - 1]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if run[middle - 1] == digests[at + middle - 1] else (low, middle)
    return low


class RadixCache:
    """The tree and its pages. `private` pages belong to running requests and are not in the tree yet."""

    def __init__(
        self, *, page_size: int, capacity_tokens: int, events: EventQueue, form: HashForm, by_page: bool
    ) -> None:
        self.page_size = page_size
        self.capacity = capacity_tokens // page_size
        self.events = events
        self.private = 0
        self._form = form
        self._by_page = by_page  # vLLM frees block by block from the end of a prompt, SGLang whole nodes
        self._order = count(1)
        self._tick = 0
        self._serial = count()
        self._empty()

    def _empty(self) -> None:
        self.root = Node([], None)
        self.resident = 0
        self.evictable = 0
        self._leaves: list[tuple[int, int, Node]] = []

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return self.capacity - self.resident - self.private

    def match(self, digests: list[bytes]) -> Match:
        """Return the longest resident prefix and mark it as used; a partly used node is split."""
        self._tick = next(self._order)
        node, pages = self.root, 0
        while pages < len(digests) and (child := node.children.get(digests[pages])) is not None:
            child.used = self._tick
            same = _common(child.digests, digests, pages)
            node = child if same == len(child.digests) else self._split(child, same)
            pages += same
            if node is not child:
                break
        return Match(node, pages)

    def _split(self, child: Node, at: int) -> Node:
        head = Node(child.digests[:at], child.parent, locks=child.locks, used=self._tick)
        head.children[child.digests[at]] = child
        if child.parent is not None:
            child.parent.children[head.digests[0]] = head
        child.digests, child.parent = child.digests[at:], head
        return head

    def insert(self, sequence: Sequence, tokens: int) -> Match:
        """Store the full pages of the first `tokens` tokens; return their node and pages resident before."""
        digests = sequence.digests_of(tokens)
        found = self.match(digests)
        if found.pages == len(digests):
            return found
        fresh = Node(digests[found.pages :], found.node, used=self._tick)
        found.node.children[fresh.digests[0]] = fresh
        self.resident += len(fresh.digests)
        self.evictable += len(fresh.digests)
        self._queue(fresh)
        self._announce(fresh, sequence, found.pages)
        return Match(fresh, found.pages)

    def _announce(self, node: Node, sequence: Sequence, first: int) -> None:
        above = node.parent
        self.events.append(
            Stored(
                hashes=[self._form(digest) for digest in node.digests],
                parent=self._form(above.digests[-1]) if above is not None and above.digests else None,
                token_ids=sequence.token_ids(first, first + len(node.digests)),
                block_size=self.page_size,
                namespace=sequence.namespace,
            )
        )

    def lock(self, node: Node) -> None:
        """Keep a node and all above it from eviction; O(depth)."""
        for above in _path(node):
            if above.locks == 0:
                self.evictable -= len(above.digests)
            above.locks += 1

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        for above in _path(node):
            above.locks -= 1
            if above.locks == 0:
                self.evictable += len(above.digests)
                self._queue(above)

    def take(self, pages: int) -> None:
        """Give `pages` private pages to a request, evicting what is short; the caller has checked room."""
        if pages > self.free:
            self.evict(pages - self.free)
        self.private += pages

    def give(self, pages: int) -> None:
        """Take private pages back: freed, or just inserted."""
        self.private -= pages

    def evict(self, pages: int) -> None:
        """Remove least recently used unlocked leaves until `pages` pages are gone, or none is left."""
        while pages > 0 and self._leaves:
            used, _, node = heappop(self._leaves)
            node.queued = False
            if node.locks or node.children:
                continue
            if node.used != used:
                self._queue(node)
                continue
            pages -= self._drop(node, pages if self._by_page else len(node.digests))

    def _drop(self, node: Node, pages: int) -> int:
        gone = node.digests[-pages:]
        if self._by_page:
            for digest in reversed(gone):
                self.events.append(Removed([self._form(digest)]))
        else:
            self.events.append(Removed([self._form(digest) for digest in gone]))
        self.resident -= len(gone)
        self.evictable -= len(gone)
        self._shorten(node, len(gone))
        return len(gone)

    def _shorten(self, node: Node, pages: int) -> None:
        if pages < len(node.digests):
            del node.digests[-pages:]
            self._queue(node)
            return
        above = node.parent
        if above is not None:
            del above.children[node.digests[0]]
            self._queue(above)

    def _queue(self, node: Node) -> None:
        """Make an unlocked leaf a candidate; whether it was used since is looked at when its turn comes."""
        if not (node.queued or node.locks or node.children or node.parent is None):
            node.queued = True
            heappush(self._leaves, (node.used, next(self._serial), node))

    def reset(self) -> None:
        """Drop everything at once; no node may be locked."""
        self._empty()
        self.events.append(Cleared())

    def hashes(self) -> list[int | bytes]:
        """Return the event hashes of all resident blocks; O(blocks)."""
        return [self._form(digest) for node in _nodes(self.root) for digest in node.digests]


def _path(node: Node) -> Iterator[Node]:
    current = node
    while current.parent is not None:
        yield current
        current = current.parent


def _nodes(root: Node) -> Iterator[Node]:
    stack = [root]
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        yield node
