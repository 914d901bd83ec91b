"""How far a prompt's prefix is expected to reach beyond what ranks have said: from the predicted blocks.

Only where a slot stops to hold the prefix can a predicted block carry it on; mostly there is none, and
nothing else is looked at. Neighbours are mostly predicted of the same slots, so they are followed stretch by
stretch. What is held behind a predicted block counts as well, as far as it goes without a hole.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, TypeAlias

from router.core.matching import slots_of
from router.core.predicted import EACH, STEP

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable, Iterator

    from router.core.match import Match
    from router.core.matching import Spans
    from router.core.states import States

# A depth in blocks, and slots.
Place: TypeAlias = tuple[int, int]

_LAST = STEP - 1


class Reach:
    """One prompt's `keys` against what is `predicted` of each block."""

    __slots__ = ("_ends", "_held", "_keys", "_predicted", "_states")

    def __init__(self, states: States, spans: Spans, keys: array[int], predicted: dict[int, int]) -> None:
        self._held = states.held
        self._states, self._ends = spans
        self._keys = keys
        self._predicted = predicted

    def extend(self, found: Match, live: int) -> None:
        """Note how far live slots are expected to reach where that is farther than they hold the prefix.

        About 1 us, and 50 ns for each place where slots stop to hold it; where one is expected to go on
        there, 5 us more, and 50 ns for each predicted block.
        """
        if not self._ends and len(self._keys) <= EACH:
            more = self._of_root(live)
            if more:
                found.expect(more)
            return
        near = self._near(found)
        joins: dict[int, int] = {}
        for slot in slots_of(near & live) if near else ():
            depth, bit = found.of(slot)[0], 1 << slot
            if self._expected(depth) & bit:
                joins[depth] = joins.get(depth, 0) | bit
        if joins:
            found.expect(self._follow(sorted(joins.items())))

    def _of_root(self, live: int) -> dict[int, int]:
        """Return how far slots reach of a short prompt of which nobody holds a block. About 2 us."""
        more: dict[int, int] = {}
        following, get = live, self._predicted.get
        for depth, key in enumerate(self._keys):
            left = following & get(key, 0)
            if left != following:
                if depth:
                    more.update(dict.fromkeys(slots_of(following ^ left), depth))
                if not left:
                    return more
                following = left
        more.update(dict.fromkeys(slots_of(following), len(self._keys)))
        return more

    def _near(self, found: Match) -> int:
        """Return the slots that any block is predicted of with which slots stop to hold the prefix."""
        keys, predicted = self._keys, self._predicted
        if found.column is not None and len(keys) <= EACH and predicted.keys().isdisjoint(keys):
            return 0  # What takes longer is to look where each of many stops.
        if found.deepest >= EACH:
            return reduce(or_, map(self._expected, (0, *found.ends())))
        depths = [depth for depth in (0, *found.ends()) if depth < len(keys)]
        return reduce(or_, filter(None, map(predicted.get, map(keys.__getitem__, depths))), 0)

    def _expected(self, depth: int) -> int:
        """Return the slots that a block is predicted of."""
        at = _entry(depth)
        return self._predicted.get(self._keys[at], 0) if at < len(self._keys) else 0

    def _follow(self, joins: list[Place]) -> dict[int, int]:
        """Return how far the slots reach that go on by predicted blocks."""
        more: dict[int, int] = {}
        following = 0
        for start, mask in self._stretches(joins[0][0]):
            while joins and joins[0][0] < start:
                following |= joins.pop(0)[1]
            ended = following & ~mask
            following ^= ended
            for depth, slots in self._held_from(ended, start) if ended else ():
                on = slots & self._expected(depth)
                if on:
                    insort(joins, (depth, on))
                more.update(dict.fromkeys(slots_of(slots ^ on), depth))
            if not following and not joins:
                break
        return more

    def _stretches(self, depth: int) -> Iterator[Place]:
        """Yield where from `depth` on other slots are predicted than before, and which; at the end none."""
        keys, total = self._keys, len(self._keys)
        if depth < EACH:
            yield from _changes(map(self._predicted.get, keys[depth:EACH]), depth, 1)
        if total > EACH:
            window = max(depth, EACH) & ~_LAST
            yield from _changes(map(self._predicted.get, keys[window | _LAST :: STEP]), window, STEP)
            yield total & ~_LAST, 0
        yield total, 0

    def _held_from(self, slots: int, depth: int) -> Iterator[Place]:
        """Yield how far some slots hold the blocks from `depth` on."""
        at = bisect_right(self._ends, depth)
        for state, end in zip(self._states[at:], self._ends[at:], strict=True):
            left = slots & self._held[state]
            if left != slots:
                yield depth, slots ^ left
                slots = left
                if not slots:
                    return
            depth = end
        yield depth, slots


def _entry(depth: int) -> int:
    """Return which block's entry stands for the one at a depth (see `predicted`)."""
    return depth if depth < EACH else depth | _LAST


def _changes(masks: Iterable[int | None], depth: int, step: int) -> Iterator[Place]:
    """Yield the masks that differ from the one before, with their depths."""
    last: int | None = -1
    for mask in masks:
        if mask != last:
            yield depth, mask or 0
            last = mask
        depth += step
