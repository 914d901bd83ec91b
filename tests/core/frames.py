"""Events and batches for the tests of the core, written by hand."""

from __future__ import annotations

from typing import Any

import msgspec

from router.core.blocks import pack_tokens
from router.core.events import Batch, Event, Hash, Removed, Stored

BLOCK_SIZE = 4


def stored(
    hashes: list[Hash],
    tokens: list[int],
    parent: Hash | None = None,
    *,
    tier: str = "GPU",
    block_size: int = BLOCK_SIZE,
    **fields: Any,
) -> Stored:
    """Return a store of plain tokens in the base namespace."""
    plain: dict[str, Any] = {
        "bigram": False,
        "lora": None,
        "cache_salt": None,
        "extras": None,
        "group": 0,
        "kind": None,
    }
    return Stored(hashes, parent, pack_tokens(tokens), block_size, tier=tier, **(plain | fields))


def removed(hashes: list[Hash], *, tier: str = "GPU", group: int = 0) -> Removed:
    """Return a removal."""
    return Removed(hashes, tier, group)


def batch(*events: Event, ts: float = 1.0) -> Batch:
    """Return a batch of rank 0."""
    return Batch(ts, list(events), 0)


def payload(*events: Any, ts: float = 1.0, rank: int | None = 0, extra: tuple[Any, ...] = ()) -> bytes:
    """Return raw events as a publisher would encode them."""
    return msgspec.msgpack.encode([ts, list(events), rank, *extra])
