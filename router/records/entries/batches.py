"""A batch of events without a token in it."""

from __future__ import annotations

import msgspec


class Store(msgspec.Struct, array_like=True, tag=1, gc=False):
    """BlockStored. `hashes` and `blocks` are codes; without `blocks`, the event had no tokens.

    `aligned`: there is a code for each block; if not, tokens and blocks of the event did not agree.
    """

    hashes: bytes
    parent: int | None
    blocks: bytes
    aligned: bool
    block_size: int
    tier: str
    lora: str | None
    salt: str | None
    group: int
    kind: str | None


class Removal(msgspec.Struct, array_like=True, tag=2, gc=False):
    """BlockRemoved."""

    hashes: bytes
    tier: str
    group: int


class Clear(msgspec.Struct, array_like=True, tag=3, gc=False):
    """AllBlocksCleared."""


class Sealed(msgspec.Struct, array_like=True, gc=False):
    """A batch of events without a token in it."""

    ts: float
    events: list[Store | Removal | Clear]
    undecodable: int
