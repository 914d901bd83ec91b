"""What is written of batches and prompts: their shape and codes, nothing that was said in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.events import Removed, Stored
from router.records.codes import CODE_BYTES, as_tokens, code_bytes, numbers
from router.records.entries import Blocks, Clear, Removal, Sealed, Store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from router.core.blocks import PromptBlocks
    from router.core.events import Batch, Event
    from router.records.codes import Codes

# What makes blocks of neighbour pairs others than blocks of tokens, in a re-run that knows no pairs.
_PAIRS = "\0pairs"


def sealed(batch: Batch, codes: Codes) -> Sealed:
    """Return a batch as it is written."""
    return Sealed(batch.ts, [_sealed(event, codes) for event in batch.events], batch.undecodable)


def _sealed(event: Event, codes: Codes) -> Store | Removal | Clear:
    if isinstance(event, Stored):
        return _store(event, codes)
    if isinstance(event, Removed):
        return Removal(codes.hashes(event.hashes), event.tier, event.group)
    return Clear()


def _store(event: Stored, codes: Codes) -> Store:
    hashes = codes.hashes(event.hashes)
    blocks, aligned = b"\0" if event.tokens else b"", False
    if event.tokens and event.aligned:
        made = codes.blocks(event.tokens, event.block_size, bigram=event.bigram, extras=event.extras)
        aligned = len(made) // code_bytes(event.block_size) == len(hashes) // CODE_BYTES
        blocks = made if aligned else blocks
    return Store(
        hashes,
        None if event.parent is None else codes.hash(event.parent),
        blocks,
        aligned,
        event.block_size,
        event.tier,
        event.lora,
        salted(codes.salt(event.cache_salt), bigram=event.bigram),
        event.group,
        event.kind,
    )


def opened(event: Store) -> Stored:
    """Return an event for a view, with made-up tokens."""
    # Where it is not aligned, tokens of no length that could be right.
    tokens = as_tokens(event.blocks, event.block_size) if event.aligned else event.blocks
    return Stored(
        list(numbers(event.hashes)),
        event.parent,
        tokens,
        event.block_size,
        False,
        event.tier,
        event.lora,
        event.salt,
        None,
        event.group,
        event.kind,
    )


def prompt_blocks(prompt: PromptBlocks, sizes: Iterable[tuple[int, bool]], codes: Codes) -> list[Blocks]:
    """Return a prompt's blocks as they are written, for each block size."""
    return [Blocks(size, bigram, codes.blocks(prompt.tokens, size, bigram=bigram)) for size, bigram in sizes]


def salted(code: str | None, *, bigram: bool) -> str | None:
    """Return what stands for a salt where blocks are, or are not, of neighbour pairs."""
    return (code or "") + _PAIRS if bigram else code
