"""One routing decision: from a prompt's blocks and the ranks that may serve it to the rank that should."""

from __future__ import annotations

from array import array
from itertools import repeat
from typing import TYPE_CHECKING

from router.core.events import DEVICE_TIER
from router.core.facts import Facts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.core.blocks import PromptBlocks
    from router.core.facts import Candidate
    from router.core.index import Index
    from router.core.lineup import Group
    from router.core.match import Match
    from router.core.rank import Rank


def make_keys(ranks: Sequence[Rank], prompt: PromptBlocks) -> None:
    """Compute the block keys that the first of the ranks, and mostly all of them, will be asked about."""
    view = ranks[0].view if ranks else None
    if view is not None and view.block_size and prompt.tokens:
        prompt.keys(view.block_size, bigram=view.bigram)


def gather(index: Index, ranks: list[Rank], prompt: PromptBlocks, session: bytes | None = None) -> Facts:
    """Return the facts of every rank for this prompt, in the order of `ranks`.

    About 1 us beside the match (once for each block size among the ranks), and up to 0.1 us a rank that holds
    something of the prompt. A list that has been given before costs no more per rank.
    """
    lineup, count = index.lineups.of(ranks), prompt.count
    facts = Facts(lineup, lineup.loads, prompt, [count] * len(ranks), session, full=index.full(lineup))
    if prompt.tokens:
        for group in lineup.groups:
            size = group.block_size
            keys = prompt.keys(size, bigram=group.bigram)
            match = index.match(keys[: prompt.usable(size)])
            facts.matches.append(match)
            if match.deepest and not facts.prefix:
                facts.prefix = keys[match.deepest - 1]
                facts.crowd = index.crowds.expected(facts.prefix)
            _reached(facts, group, match, count)
            if match.lower:
                _lower(facts, size, group.seats, match)
            if index.doubts:
                _doubt(facts, size, group.seats, match, index.doubts)
    return facts


def _reached(facts: Facts, group: Group, match: Match, count: int) -> None:
    """Take off what ranks reach; quicker where they are seated in order, and most hold something."""
    size, seats, uncached = group.block_size, group.seats, facts.uncached
    reach = match.more
    if match.column is None:
        reach = match.reach
        if 2 * len(reach) > len(seats) == len(uncached):
            uncached[:] = [count - blocks * size for blocks in map(reach.get, seats, repeat(0))]
            return
    elif len(seats) == len(uncached):
        column = count - size * match.column.take(group.slots, mode="clip")
        uncached[:] = column.tolist()
        facts.column = None if reach else column
    else:
        reach = match.reach
    for slot in reach:
        if slot in seats:
            uncached[seats[slot]] = count - reach[slot] * size


def _lower(facts: Facts, size: int, seats: dict[int, int], match: Match) -> None:
    """Note what of the prompt ranks hold in lower tiers only."""
    for tier, slots in match.lower.items():
        tokens = facts.lower.setdefault(tier, {})
        tokens.update((seats[slot], blocks * size) for slot, blocks in slots.items() if slot in seats)


def _doubt(facts: Facts, size: int, seats: dict[int, int], match: Match, doubts: dict[int, float]) -> None:
    """Count in part what is predicted of ranks that have not held what had been predicted."""
    for slot, trust in doubts.items():
        held, reach = match.of(slot)
        if reach > held and slot in seats:
            facts.column = None
            facts.uncached[seats[slot]] += (1.0 - trust) * (reach - held) * size


def predict(chosen: Candidate, prompt: PromptBlocks, now: float) -> array[int]:
    """Enter what the rank will hold once it has prefilled the prompt; return the keys that are news.

    The prefix that the view already holds needs no prediction; what was predicted before is predicted for
    longer, and stays when this request comes to nothing. About 0.15 us a block. A LoRA adapter is noted as
    loaded there, and the request among those who ask for its prefix, once however often it is sent.
    """
    rank = chosen.rank
    view = rank.view
    if prompt.namespace.lora is not None:
        rank.note_adapter(prompt.namespace.lora)
    if not view.block_size or not prompt.tokens:
        return array("Q")
    if chosen.prefix and not prompt.noted:
        prompt.noted = True
        view.note_asked(chosen.prefix, now)
    start = chosen.cached_tokens // view.block_size
    keys = prompt.keys(view.block_size, bigram=view.bigram)[start:]
    known = chosen.predicted_tokens // view.block_size
    view.predicted.add(keys, now, start, known)
    return keys[known:]


def withdraw(rank: Rank, keys: Iterable[int]) -> None:
    """Take back predictions that will not come true."""
    rank.view.predicted.settle_all(keys)


def overlap_by_tier(match: Match, rank: Rank, tokens: int) -> dict[str, int]:
    """Split `tokens` of confirmed overlap by the best tier that holds each block, in tokens."""
    size = rank.view.block_size or 0
    lower = {tier: slots.get(rank.view.slot, 0) * size for tier, slots in match.lower.items()}
    split = {DEVICE_TIER: tokens - sum(lower.values())}
    split.update((tier, count) for tier, count in lower.items() if count)
    return split
