"""Large events in pieces, each a whole event: no piece holds the loop longer than about a millisecond."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from router.core.events import Removed, Stored

if TYPE_CHECKING:
    from collections.abc import Iterator

PIECE_BLOCKS = 512


class Doubt(msgspec.Struct, gc=False):
    """The blocks of a prompt from `start` on are not held, whatever was claimed; `keys` are the prompt's."""

    keys: array[int]
    start: int

    @property
    def hashes(self) -> array[int]:
        """What is in doubt."""
        return self.keys[self.start :]


Piece: TypeAlias = Stored | Removed | Doubt


def pieces(event: Stored | Removed) -> Iterator[Stored | Removed]:
    """Yield the parts of an event, in order; each but the first of a store follows the one before."""
    size = len(event.hashes)
    if size <= PIECE_BLOCKS:
        yield event
        return
    if type(event) is Stored and event.tokens and not event.aligned:
        yield event
        return
    for start in range(0, size, PIECE_BLOCKS):
        stop = min(size, start + PIECE_BLOCKS)
        yield (
            part(event, start, stop)
            if type(event) is Stored
            else msgspec.structs.replace(event, hashes=event.hashes[start:stop])
        )


def doubts(keys: array[int], start: int) -> Iterator[Doubt]:
    """Yield a doubt in pieces, the one nearest to the root first: without it the others count for nothing."""
    for at in range(start, len(keys), PIECE_BLOCKS):
        yield Doubt(keys[: at + PIECE_BLOCKS], at)


def part(event: Stored, start: int, stop: int) -> Stored:
    """Return blocks `start` to `stop` of a store, with the tokens that are theirs."""
    width = 4 * event.block_size
    return msgspec.structs.replace(
        event,
        hashes=event.hashes[start:stop],
        parent=event.hashes[start - 1] if start else event.parent,
        tokens=event.tokens[start * width : stop * width + 4 * event.bigram],
        extras=event.extras[start:stop] if event.extras else event.extras,
    )
