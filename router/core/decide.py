"""One routing decision: from a prompt's blocks and the ranks that may serve it to the rank that should."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from router.core.cost import Candidate
from router.core.matching import Match
from router.core.wire import DEVICE_TIER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.core.blocks import PromptBlocks
    from router.core.index import Index
    from router.core.rank import Rank

_NOTHING = Match({}, {}, {})


def match(index: Index, ranks: Sequence[Rank], prompt: PromptBlocks) -> dict[tuple[int, bool], Match]:
    """Match the prompt once for each block size among the ranks: (block size, bigram) -> Match."""
    sizes = {(rank.view.block_size, rank.view.bigram) for rank in ranks}
    found = {}
    for block_size, bigram in sizes:
        if block_size:
            found[block_size, bigram] = _match(index, prompt, block_size, bigram=bigram)
    return found


def make_keys(ranks: Sequence[Rank], prompt: PromptBlocks) -> None:
    """Compute the block keys that the first of the ranks, and mostly all of them, will be asked about."""
    view = ranks[0].view if ranks else None
    if view is not None and view.block_size and prompt.tokens:
        prompt.keys(view.block_size, bigram=view.bigram)


def candidates(index: Index, ranks: Sequence[Rank], prompt: PromptBlocks) -> list[Candidate]:
    """Return the facts of every rank for this prompt, in tokens, in the order of `ranks`.

    About 0.2 us a rank, beside the match.
    """
    count = prompt.count
    if not prompt.tokens:
        return [Candidate(rank, 0, 0, count) for rank in ranks]
    found: dict[tuple[int | None, bool], Match] = {}
    size, bigram, here = None, False, _NOTHING
    result = []
    for rank in ranks:
        view = rank.view
        if view.block_size != size or view.bigram is not bigram:
            size, bigram = view.block_size, view.bigram
            here = found.get((size, bigram)) or _NOTHING
            if size and (size, bigram) not in found:
                here = found[size, bigram] = _match(index, prompt, size, bigram=bigram)
        blocks = here.reach.get(view.slot)
        if blocks:
            reach = blocks * (size or 0)
            held = here.held.get(view.slot, 0) * (size or 0)
            result.append(Candidate(rank, held, reach - held, count - reach))
        else:
            result.append(Candidate(rank, 0, 0, count))
    return result


def _match(index: Index, prompt: PromptBlocks, block_size: int, *, bigram: bool) -> Match:
    return index.match(prompt.keys(block_size, bigram=bigram)[: prompt.usable(block_size)])


def predict(chosen: Candidate, prompt: PromptBlocks, now: float) -> array[int]:
    """Enter what the rank will hold once it has prefilled the prompt; return the keys that are news.

    The prefix that the view already holds needs no prediction; what was predicted before is predicted for
    longer, and stays when this request comes to nothing. About 0.15 us a block.
    """
    view = chosen.rank.view
    if not view.block_size or not prompt.tokens:
        return array("Q")
    start = chosen.cached_tokens // view.block_size
    keys = prompt.keys(view.block_size, bigram=view.bigram)[start:]
    known = chosen.predicted_tokens // view.block_size
    view.predicted.add(keys, now, start, known)
    return keys[known:]


def withdraw(rank: Rank, keys: Iterable[int]) -> None:
    """Take back predictions that will not come true."""
    rank.view.predicted.settle_all(keys)


def overlap_by_tier(match_: Match, rank: Rank, tokens: int) -> dict[str, int]:
    """Split `tokens` of confirmed overlap by the best tier that holds each block, in tokens."""
    size = rank.view.block_size or 0
    lower = {tier: slots.get(rank.view.slot, 0) * size for tier, slots in match_.lower.items()}
    split = {DEVICE_TIER: tokens - sum(lower.values())}
    split.update((tier, count) for tier, count in lower.items() if count)
    return split
