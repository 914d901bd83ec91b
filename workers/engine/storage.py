"""The third tier: a store of pages by digest, which no event ever names and no flush empties."""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Storage:
    """At most `capacity` pages; the least recently used go first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._pages: OrderedDict[bytes, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pages)

    def put(self, digests: Iterable[bytes]) -> None:
        """Store pages."""
        for digest in digests:
            self._pages[digest] = None
            self._pages.move_to_end(digest)
        while len(self._pages) > self.capacity:
            self._pages.popitem(last=False)

    def leading(self, digests: Iterable[bytes]) -> int:
        """Return how many of the first pages are all there, and mark these as used."""
        found = list(takewhile(self._pages.__contains__, digests))
        for digest in found:
            self._pages.move_to_end(digest)
        return len(found)
