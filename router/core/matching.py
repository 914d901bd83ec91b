"""How far a prompt's prefix reaches on every rank, from the states along the rows that hold it."""

from __future__ import annotations

from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from router.core.predicted import EACH, STEP
from router.core.states import NOBODY

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

    from router.core.rooms import Run
    from router.core.states import States
    from router.core.tree import Tree

# A state, and the number of blocks that it lasts.
Span: TypeAlias = tuple[int, int]

# Up to so many rows are looked at faster without numpy: that differ, that are alike.
_SHORT, _LONG = 128, 1024


class Match(msgspec.Struct, gc=False):
    """How many blocks of a prompt's prefix each slot holds.

    `held`: blocks that the rank has said it holds. `reach`: the same with predicted ones. `lower`: of
    the held ones, those found only in a tier below the device, by tier. Slots that hold nothing are absent.
    """

    held: dict[int, int]
    reach: dict[int, int]
    lower: dict[str, dict[int, int]]


def spans_along(tree: Tree, runs: list[Run]) -> list[Span]:
    """Return the states along some rows. About 0.5 us a run, and as much for 16 rows that differ."""
    spans: list[Span] = []
    states = tree.states
    for row, length in runs:
        end = row + length
        if length <= _LONG and states[row : end - 1] == states[row + 1 : end]:
            spans.append((states[row], length))
        elif length <= _SHORT:
            _add_few(spans, states[row:end].tolist())
        else:
            words = tree.state_words[row:end]
            ends = (words[:-1] != words[1:]).nonzero()[0]
            lengths = ends + 1
            lengths[1:] -= lengths[:-1].copy()
            spans += zip(words[ends].tolist(), lengths.tolist(), strict=True)
            spans.append((states[end - 1], length - int(ends[-1]) - 1 if len(ends) else length))
    return spans


def _add_few(spans: list[Span], states: list[int]) -> None:
    state, start, at = states[0], 0, 0
    for here in states:
        if here != state:
            spans.append((state, at - start))
            state, start = here, at
        at += 1
    spans.append((state, at - start))


def measure(states: States, spans: list[Span], live: int, found: Match) -> None:
    """Note how far each live slot holds the blocks of the spans, and in which tiers."""
    held, depths, holding, depth = states.held, found.held, live, 0
    device = states.device if len(states.planes) > 1 else held
    for state, length in spans:
        left = holding & held[state]
        if left != holding:
            if depth:
                ended = holding ^ left
                # One rank drops out at a time, mostly.
                if ended.bit_count() > 1:
                    depths.update(_all_at(ended, depth))
                else:
                    depths[ended.bit_length() - 1] = depth
            if not left:
                return
            holding = left
        if device is not held and holding & ~device[state]:
            _add_lower(states, found.lower, state, holding & ~device[state], length)
        depth += length
    if depth:
        depths.update(_all_at(holding, depth))


def _add_lower(states: States, lower: dict[str, dict[int, int]], state: int, slots: int, length: int) -> None:
    masks = states.masks[state]
    for (tier, _), plane in states.planes.items():
        here = masks[plane] & slots if plane and plane < len(masks) else 0
        if here:
            slots &= ~here
            counts = lower.setdefault(tier, {})
            for slot in slots_of(here):
                counts[slot] = counts.get(slot, 0) + length


def reach(
    states: States, spans: list[Span], live: int, keys: array[int], predicted: dict[int, int]
) -> dict[int, int]:
    """Return how far each live slot holds the prefix or is expected to. 30 to 150 ns a predicted block."""
    depths: dict[int, int] = {}
    held, reaching, depth, total = states.held, live, 0, len(keys)
    for state, length in (*spans, (NOBODY, total)):
        needing = reaching & ~held[state]
        end = min(depth + length, total)
        if needing and depth < end:
            left = _follow(needing, depth, end, keys, predicted, depths)
            reaching ^= needing ^ left
        depth = end
        if not reaching:
            return depths
    if depth:
        depths.update(_all_at(reaching, depth))
    return depths


def _follow(
    needing: int, depth: int, end: int, keys: array[int], predicted: dict[int, int], depths: dict[int, int]
) -> int:
    """Return the slots that are expected to hold the blocks from `depth` to `end`; note how far others do."""
    entries: Iterable[tuple[int, int | None]]
    if end <= EACH:
        masks = list(map(predicted.get, keys[depth:end]))
        # Most prompts are expected somewhere as a whole, or nowhere.
        entries = enumerate(masks[:1] if masks.count(masks[0]) == len(masks) else masks, depth)
    else:
        total = len(keys)
        entries = ((at, predicted.get(keys[at]) if at < total else 0) for at in _entries(depth, end))
    for entry, mask in entries:
        ended = needing & ~(mask or 0)
        if ended:
            at = entry if entry < EACH else max(depth, entry - STEP + 1)
            if at:
                depths.update(_all_at(ended, at))
            needing ^= ended
            if not needing:
                break
    return needing


def _entries(start: int, stop: int) -> Iterable[int]:
    """Return the depths of the entries for some blocks of a prompt (see `predicted`)."""
    if stop <= EACH:
        return range(start, stop)
    last = STEP - 1
    return chain(range(start, EACH), range(max(start, EACH) | last, (stop - 1 | last) + 1, STEP))


@lru_cache(maxsize=512)
def _all_at(slots: int, depth: int) -> dict[int, int]:
    """Return one depth for each slot. Kept: most prompts begin alike, and to copy a dict costs the least."""
    return dict.fromkeys(slots_of(slots), depth)


@lru_cache(maxsize=4096)
def slots_of(mask: int) -> tuple[int, ...]:
    """Return the slots of a mask, lowest first."""
    return tuple(slot for slot, digit in enumerate(reversed(bin(mask))) if digit == "1")
