"""A node of the radix tree: a run of pages that is always used together, and where its copies are.

Copies on the device and copies on the host are each closed towards the root: no page is held by a tier
that does not hold the page before it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.engine.namespace import Namespace


@dataclass(slots=True, eq=False)
class Node:
    """`digests`, one per page, and the packed `tokens` they stand for (one more when bigram).

    `locks`: users of this node or one below it that need it on the device. `device`: it is there.
    `host`: a copy is on the host; `saving`: one is on its way. `pins`: readers of the host copy.
    `hits`: how often it was stored, which decides when it is worth a copy. `used`: order of last use.
    """

    digests: list[bytes]
    tokens: bytes
    namespace: Namespace
    parent: Node | None
    children: dict[bytes, Node] = field(default_factory=dict)
    locks: int = 0
    used: int = 0
    device: bool = True
    device_children: int = 0
    host: bool = False
    saving: bool = False
    pins: int = 0
    hits: int = 0

    @property
    def is_device_leaf(self) -> bool:
        """Whether it may leave the device."""
        return self.device and not (self.locks or self.device_children or self.parent is None)

    @property
    def is_host_leaf(self) -> bool:
        """Whether it may leave the host, and with that the tree: nodes on the device keep their copy."""
        return self.host and not (self.device or self.children or self.pins)

    @property
    def holds_prefix_on_host(self) -> bool:
        """Whether a page after this node may have a copy on the host."""
        return self.parent is None or self.host or self.saving


def path(node: Node) -> Iterator[Node]:
    """Yield a node and all above it, without the root."""
    current = node
    while current.parent is not None:
        yield current
        current = current.parent


def span(node: Node, pages: int) -> list[Node]:
    """Return the nodes, top first, that now hold the last `pages` pages down to the end of `node`."""
    found: list[Node] = []
    for above in path(node):
        if pages <= 0:
            break
        found.append(above)
        pages -= len(above.digests)
    return found[::-1]


def below(root: Node) -> Iterator[Node]:
    """Yield a node and all below it, in no particular order."""
    stack = [root]
    while stack:
        node = stack.pop()
        stack.extend(node.children.values())
        yield node
