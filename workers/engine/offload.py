"""An offload connector of vLLM: blocks copied to the CPU, announced without tokens.

Its events are placeholders (no token ids, block size 0, no parent, medium CPU): who reads them must know
the hash already. The oldest blocks go first.
"""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile
from typing import TYPE_CHECKING

from workers.engine.events import OFFLOADED, Removed, Stored
from workers.engine.hicache import TierConfig
from workers.engine.transfers import Line

if TYPE_CHECKING:
    from collections.abc import KeysView

    from workers.engine.events import EventQueue
    from workers.engine.rank import EngineConfig


class Offload:
    """The CPU's blocks of one rank and the copies on their way there."""

    def __init__(self, config: EngineConfig, events: EventQueue) -> None:
        self.tiers = config.tiers or TierConfig()
        self._page_size = config.page_size
        self._form = config.dialect.form
        self._capacity = int(config.capacity_tokens // config.page_size * self.tiers.host)
        self._events = events
        self._held: OrderedDict[bytes, None] = OrderedDict()
        self._saves: Line[list[bytes]] = Line()

    @property
    def digests(self) -> KeysView[bytes]:
        """The blocks held."""
        return self._held.keys()

    def _seconds(self, pages: int) -> float:
        return self.tiers.host_seconds(pages * self._page_size)

    def save(self, digests: list[bytes], now: float) -> None:
        """Begin to copy blocks that are not there yet."""
        fresh = [digest for digest in digests if digest not in self._held]
        if fresh:
            self._saves.start(fresh, self._seconds(len(fresh)), now)

    def reap(self, now: float) -> None:
        """Announce the copies that have ended, and what had to go for them."""
        self._saves.advance(now)
        for digests in self._saves.reap():
            fresh = [digest for digest in digests if digest not in self._held]
            self._held.update(dict.fromkeys(fresh))
            if fresh:
                hashes = [self._form(digest) for digest in fresh]
                self._events.append(Stored(hashes, None, [], 0, OFFLOADED))
        gone = [self._held.popitem(last=False)[0] for _ in range(len(self._held) - self._capacity)]
        if gone:
            self._events.append(Removed([self._form(digest) for digest in gone], OFFLOADED))

    def leading(self, digests: list[bytes]) -> int:
        """Return how many of the first blocks are all held."""
        return sum(1 for _ in takewhile(self._held.__contains__, digests))

    def load(self, pages: int, now: float) -> float:
        """Return when blocks will be on the device if their copy begins now."""
        return now + self._seconds(pages)

    def reset(self) -> None:
        """Forget everything."""
        self._held.clear()
        self._saves.clear()
