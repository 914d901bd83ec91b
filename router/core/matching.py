"""How far a prompt's prefix is held on every rank, from the states along the rows that hold it."""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from router.core.bits import places_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from router.core.match import Match
    from router.core.rooms import Run
    from router.core.states import States
    from router.core.tree import Tree

# Up to so many rows are looked at faster without numpy: that differ, that are alike; and so many states.
_SHORT, _LONG, _MANY = 48, 1024, 128


# States, alike neighbours as one, and the depth at which each ends, in blocks; arrays where one run has many.
Spans: TypeAlias = tuple[Sequence[int], Sequence[int]]


def spans_along(tree: Tree, runs: list[Run]) -> Spans:
    """Return the states along some rows. About 0.5 us a run, and as much for 16 rows that differ."""
    numbers: MutableSequence[int] = []
    ends: MutableSequence[int] = []
    states, depth = tree.states, 0
    for row, length in runs:
        end = row + length
        if length <= _SHORT:
            _add_few(numbers, ends, states[row:end].tolist(), depth)
        elif length <= _LONG and states[row : end - 1] == states[row + 1 : end]:
            numbers.append(states[row])
        else:
            words = tree.state_words[row:end]
            last = (words[:-1] != words[1:]).nonzero()[0]
            if len(last) > _MANY:
                numbers, ends = array("I", numbers), array("q", ends)
            numbers.extend(_items(words[last], numbers))
            numbers.append(states[end - 1])
            ends.extend(_items(last + (depth + 1), ends))
        depth += length
        ends.append(depth)
    return numbers, ends


def _items(words: NDArray[Any], like: MutableSequence[int]) -> Sequence[int]:
    """Return some numbers as what a list or an array is extended by."""
    return array(like.typecode, words.tobytes()) if isinstance(like, array) else words.tolist()


def _add_few(
    numbers: MutableSequence[int], ends: MutableSequence[int], states: list[int], depth: int
) -> None:
    """Add the spans of some rows, but the end of the last."""
    state = states[0]
    if states.count(state) < len(states):
        for at, here in enumerate(states, depth):
            if here != state:
                numbers.append(state)
                ends.append(at)
                state = here
    numbers.append(state)


def measure(states: States, spans: Spans, live: int, found: Match) -> None:
    """Note how far each live slot holds the blocks of the spans, and in which tiers."""
    numbers, ends = spans
    tiered = len(states.planes) > 1
    if len(numbers) > _MANY and not (tiered and _any_lower(states, numbers)):
        _measure_many(states, spans, live, found)
        return
    masks, held, holding, start = states.held, found.by_slot, live, 0
    for state, end in zip(numbers, ends):  # noqa: B905 - `strict` costs a tenth where there are few
        left = holding & masks[state]
        if left != holding:
            if start:
                ended = holding ^ left
                # One rank drops out at a time, mostly.
                if ended.bit_count() > 1:
                    held.update(_all_at(ended, start))
                else:
                    held[ended.bit_length() - 1] = start
            if not left:
                break
            holding = left
        if tiered and (lower := holding & ~states.device[state]):
            _add_lower(states, found.lower, state, lower, end - start)
        start = end
    else:
        if start:
            held.update(_all_at(holding, start))
    found.deepest = found.proven = start if held else 0


def _measure_many(states: States, spans: Spans, live: int, found: Match) -> None:
    """Do the same where the states change often. About 30 us, and 60 ns a state."""
    rows = states.bits.of(array("I", spans[0]), live)
    np.bitwise_and.accumulate(rows, axis=0, out=rows)
    rows[:-1] ^= rows[1:]
    last, slots = places_of(rows)
    found.column = np.zeros(rows.shape[1] * 64 + 1, np.int64)
    found.column[slots] = depths = np.frombuffer(array("q", spans[1]), np.int64)[last]
    found.deepest = found.proven = int(depths[-1]) if len(depths) else 0


def _any_lower(states: States, numbers: Sequence[int]) -> bool:
    """Whether anything is held in a lower tier only."""
    return any(states.held[state] != states.device[state] for state in numbers)


def _add_lower(states: States, lower: dict[str, dict[int, int]], state: int, slots: int, length: int) -> None:
    masks = states.masks[state]
    for (tier, _), plane in states.planes.items():
        here = masks[plane] & slots if plane and plane < len(masks) else 0
        if here:
            slots &= ~here
            counts = lower.setdefault(tier, {})
            for slot in slots_of(here):
                counts[slot] = counts.get(slot, 0) + length


@lru_cache(maxsize=512)
def _all_at(slots: int, depth: int) -> dict[int, int]:
    """Return one depth for each slot. Kept: most prompts begin alike, and to copy a dict costs the least."""
    return dict.fromkeys(slots_of(slots), depth)


@lru_cache(maxsize=4096)
def slots_of(mask: int) -> tuple[int, ...]:
    """Return the slots of a mask, lowest first."""
    return tuple(slot for slot, digit in enumerate(reversed(bin(mask))) if digit == "1")
