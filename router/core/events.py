"""What a rank says of its blocks: batches of events, whatever dialect they came in."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Hash: TypeAlias = int | bytes

DEVICE_TIER = "GPU"


class Stored(msgspec.Struct, gc=False):
    """Blocks now held. `tokens` is u32 LE: len(hashes) * block_size ids, and one more with `bigram`.

    `extras`: what else makes each block's content, encoded, b"" where nothing does.
    """

    hashes: list[Hash]
    parent: Hash | None
    tokens: bytes
    block_size: int
    bigram: bool
    tier: str
    lora: str | None
    cache_salt: str | None
    extras: list[bytes] | None
    group: int
    kind: str | None

    @property
    def aligned(self) -> bool:
        """Whether there are blocks, and the token ids divide evenly over them."""
        blocks = len(self.hashes)
        tokens = blocks * self.block_size + self.bigram
        return blocks > 0 and self.block_size > 0 and len(self.tokens) == 4 * tokens


class Removed(msgspec.Struct, gc=False):
    """Blocks no longer held in one tier."""

    hashes: list[Hash]
    tier: str
    group: int


class Cleared(msgspec.Struct, gc=False):
    """Every block of the rank, in every tier, is gone."""


Event: TypeAlias = Stored | Removed | Cleared


class Batch(msgspec.Struct, gc=False):
    """One publisher batch: `ts` in seconds since the epoch, the rank the engine gave, its events in order."""

    ts: float
    events: list[Event]
    rank: int | None
    undecodable: int = 0

    @property
    def clears(self) -> bool:
        """Whether the rank's cache is emptied somewhere in this batch."""
        return Cleared in map(type, self.events)
