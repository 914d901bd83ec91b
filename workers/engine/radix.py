"""A paged radix cache of one rank: what is resident on device and host, what is locked, what goes first.

Since a digest names its whole prefix, one comparison at the end of a run decides the run, and namespaces
need no trees of their own. A match or a split emits nothing; a page that comes to a tier emits Stored, one
that leaves it Removed. Sizes are pages throughout; order of use is a counter, not a clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

from workers.engine.events import GPU, HOST, Cleared, EventQueue, Removed, Stored
from workers.engine.hashes import TOKEN_BYTES
from workers.engine.leaves import Leaves
from workers.engine.namespace import PLAIN
from workers.engine.node import Node, below, path, span
from workers.engine.sequence import token_ids

if TYPE_CHECKING:
    from workers.engine.hashes import HashForm
    from workers.engine.sequence import Sequence


@dataclass(slots=True)
class Match:
    """How much of a prompt is held.

    `node`: the deepest on the device, `pages` down to its end; `deepest`: the deepest on any tier, whose
    last `host_pages` pages only the host holds.
    """

    node: Node
    pages: int
    deepest: Node
    host_pages: int = 0


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
    """The tree and its pages. `private` pages belong to running requests and are not in the tree yet.

    `host_used` counts copies on the host and those on their way there.
    """

    def __init__(
        self,
        *,
        page_size: int,
        capacity: int,
        events: EventQueue,
        form: HashForm,
        bigram: bool = False,
        host_capacity: int = 0,
    ) -> None:
        self.page_size, self.capacity, self.host_capacity = page_size, capacity, host_capacity
        self.events = events
        self.private = 0
        self._form = form
        self._bigram = bigram
        self._order = count(1)
        self._tick = 0
        self._device_leaves = Leaves(lambda node: node.is_device_leaf)
        self._host_leaves = Leaves(lambda node: node.is_host_leaf)
        self._empty()

    def _empty(self) -> None:
        self.root = Node([], b"", PLAIN, None)
        self.resident = 0
        self.evictable = 0
        self.host_used = 0
        self._device_leaves.clear()
        self._host_leaves.clear()

    @property
    def free(self) -> int:
        """Pages of the device that nobody holds."""
        return self.capacity - self.resident - self.private

    def match(self, digests: list[bytes]) -> Match:
        """Return the longest prefix that is held and mark it as used; a partly used node is split."""
        self._tick = next(self._order)
        found = Match(self.root, 0, self.root)
        pages = 0
        while pages < len(digests) and (child := found.deepest.children.get(digests[pages])) is not None:
            child.used = self._tick
            same = _common(child.digests, digests, pages)
            node = child if same == len(child.digests) else self._split(child, same)
            pages += same
            found.deepest = node
            if node.device:
                found.node, found.pages = node, pages
            if node is not child:
                break
        found.host_pages = pages - found.pages
        return found

    def _split(self, child: Node, at: int) -> Node:
        cut = at * self.page_size * TOKEN_BYTES
        head = Node(
            child.digests[:at],
            child.tokens[: cut + self._bigram * TOKEN_BYTES],
            child.namespace,
            child.parent,
            locks=child.locks,
            used=self._tick,
            device=child.device,
            device_children=int(child.device),
            host=child.host,
            saving=child.saving,
            pins=child.pins,
            hits=child.hits,
        )
        head.children[child.digests[at]] = child
        if child.parent is not None:
            child.parent.children[head.digests[0]] = head
        child.digests, child.tokens, child.parent = child.digests[at:], child.tokens[cut:], head
        return head

    def insert(self, sequence: Sequence, tokens: int) -> Node:
        """Store the full pages of the first `tokens` tokens on the device; return their node."""
        digests = sequence.digests_of(tokens)
        found = self.match(digests)
        self.load(found)
        if found.pages + found.host_pages == len(digests):
            return found.deepest
        return self._come(self._add(found.deepest, sequence, found.pages + found.host_pages, len(digests)))

    def _add(self, above: Node, sequence: Sequence, first: int, end: int) -> Node:
        digests, tokens = sequence.digests[first:end], sequence.span(first, end)
        fresh = Node(digests, tokens, sequence.namespace, above, used=self._tick, device=False)
        above.children[digests[0]] = fresh
        return fresh

    def _come(self, node: Node) -> Node:
        """Let the device hold a node whose pages have been computed or loaded."""
        node.device = True
        if node.parent is not None:
            node.parent.device_children += 1
        self.resident += len(node.digests)
        self.evictable += len(node.digests)
        self._device_leaves.offer(node)
        self._announce(node, GPU)
        return node

    def load(self, found: Match) -> None:
        """Let the device hold what a match has found on the host only; the caller has made room."""
        for node in span(found.deepest, found.host_pages):
            self._come(node)

    def _announce(self, node: Node, medium: str) -> None:
        above = node.parent
        self.events.append(
            Stored(
                hashes=self._hashes(node),
                parent=self._form(above.digests[-1]) if above is not None and above.digests else None,
                token_ids=token_ids(node.tokens, bigram=self._bigram),
                block_size=self.page_size,
                medium=medium,
                namespace=node.namespace,
            )
        )

    def _hashes(self, node: Node) -> list[int | bytes]:
        return [self._form(digest) for digest in node.digests]

    def lock(self, node: Node) -> None:
        """Keep a node and all above it on the device; O(depth)."""
        for above in path(node):
            if above.locks == 0:
                self.evictable -= len(above.digests)
            above.locks += 1

    def unlock(self, node: Node) -> None:
        """Undo one `lock`."""
        for above in path(node):
            above.locks -= 1
            if above.locks == 0:
                self.evictable += len(above.digests)
                self._device_leaves.offer(above)

    def take(self, pages: int) -> None:
        """Give `pages` private pages to a request, evicting what is short; the caller has checked room."""
        self.make_room(pages)
        self.private += pages

    def give(self, pages: int) -> None:
        """Take private pages back: freed, or just inserted."""
        self.private -= pages

    def make_room(self, pages: int) -> None:
        """Evict least recently used unlocked nodes until `pages` pages are free, or none is left."""
        while self.free < pages and (node := self._device_leaves.pop()) is not None:
            self._leave_device(node)

    def _leave_device(self, node: Node) -> None:
        node.device = False
        self.resident -= len(node.digests)
        self.evictable -= len(node.digests)
        self.events.append(Removed(self._hashes(node), GPU))
        if node.parent is not None:
            node.parent.device_children -= 1
            self._device_leaves.offer(node.parent)
        if node.host:
            self._host_leaves.offer(node)
        else:
            self._unlink(node)

    def _unlink(self, node: Node) -> None:
        if node.parent is not None:
            del node.parent.children[node.digests[0]]
            self._host_leaves.offer(node.parent)

    def reserve(self, pages: int) -> bool:
        """Take room on the host, evicting what is short; return False, taking none, if it is too small."""
        while self.host_used + pages > self.host_capacity:
            node = self._host_leaves.pop()
            if node is None:
                return False
            self._leave_host(node)
        self.host_used += pages
        return True

    def _leave_host(self, node: Node) -> None:
        node.host = False
        self.host_used -= len(node.digests)
        self.events.append(Removed(self._hashes(node), HOST))
        self._unlink(node)

    def saved(self, nodes: list[Node]) -> None:
        """Let the host hold nodes whose copies have arrived, top first."""
        for node in nodes:
            node.saving, node.host = False, True
            self._announce(node, HOST)

    def insert_host(self, sequence: Sequence, first: int, end: int) -> None:
        """Store pages first..end-1 on the host, in room reserved before; what has no use is given back."""
        found = self.match(sequence.digests_of_pages(end))
        begin = found.pages + found.host_pages
        wanted = end - begin if begin >= first and (found.deepest.parent is None or found.deepest.host) else 0
        self.host_used -= end - first - wanted
        if wanted:
            node = self._add(found.deepest, sequence, begin, end)
            self.saved([node])
            self._host_leaves.offer(node)

    def unpin(self, nodes: list[Node]) -> None:
        """Undo one pin of each node."""
        for node in nodes:
            node.pins -= 1
            self._host_leaves.offer(node)

    def reset(self) -> None:
        """Drop everything on device and host at once; no node may be in use."""
        self._empty()
        self.events.append(Cleared())

    def tiers(self) -> dict[str, list[int | bytes]]:
        """Return the event hashes of all blocks that each tier holds; O(blocks)."""
        held: dict[str, list[Any]] = {GPU: [], HOST: []}
        for node in below(self.root):
            held[GPU] += self._hashes(node) if node.device else []
            held[HOST] += self._hashes(node) if node.host else []
        return held
