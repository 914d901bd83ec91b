"""A record as a router would have made it, in miniature, without a router."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.events import Batch, Cleared, Removed, Stored
from router.records import entries
from router.records.codes import Codes
from router.records.format import MAGIC, block, packed
from router.records.seal import prompt_blocks, sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

SIZE = 4


def nothing() -> None:
    """Nobody waits."""


CODES = Codes(nothing, b"secret")


def session(part: int = 0) -> entries.Session:
    """Return the first entry."""
    weights = {"uncached": 3.0, "active": 512.0}
    return entries.Session("s", part, "0.1.0", 1.0, 0.0, "kv", weights, 1 << 20, 1000)


def ranked(rank: int) -> entries.Ranked:
    """Return a rank of a worker of its own, with events."""
    return entries.Ranked(rank, f"http://w{rank}", 0, "m", None, False, False, 30.0, 4096)


def stored(
    hashes: Sequence[int], tokens: Sequence[int], parent: int | None = None, *, bigram: bool = False
) -> Stored:
    """Return an event about blocks of four tokens."""
    packed_tokens = pack_tokens(tokens)
    return Stored(list(hashes), parent, packed_tokens, SIZE, bigram, "GPU", None, None, None, 0, None)


def batch(*events: Stored | Removed | Cleared, ts: float = 1.0) -> Batch:
    """Return a batch."""
    return Batch(ts, list(events), None)


def live(rank: int, seq: int, events: Batch, *, at_once: bool = True) -> entries.Live:
    """Return a batch that came and was applied."""
    return entries.Live(float(seq), rank, seq, 100, at_once, sealed(events, CODES))


def prompt(request: int, tokens: Sequence[int]) -> entries.Prompt:
    """Return a request's prompt."""
    blocks = PromptBlocks(pack_tokens(tokens), len(tokens), Namespace("m"))
    made = prompt_blocks(blocks, [(SIZE, False)], CODES)
    return entries.Prompt(
        1.0,
        request,
        f"r{request}",
        "/v1/completions",
        "m",
        None,
        None,
        False,
        len(tokens),
        True,
        len(tokens) - 1,
        True,
        made,
    )


def part(*blocks: Iterable[entries.Entry]) -> bytes:
    """Return a part of these blocks."""
    return MAGIC + b"".join(block(packed(list(each))) for each in blocks)


def write(directory: Path, *made: entries.Entry) -> Path:
    """Write a session of one part."""
    path = directory / "s-00000.kvr"
    path.write_bytes(part([session(), *made]))
    return path
