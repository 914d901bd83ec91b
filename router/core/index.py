"""All views together: which ranks hold a block, in which tier, and how far a prompt's prefix reaches.

One flat table per tier maps a block key to a bitmask of the ranks that hold it; a further one does the
same for predicted blocks. A rank's view owns one bit, its slot. A reset is O(1): the view takes a fresh
slot, the old one is struck from the mask of live slots at once, and what the tables still say of it is
swept away in small portions (`sweep`) before the slot is used again. Keys are chained, so a key says
all of its prefix; a rank whose parent block is gone simply stops matching there, and counts again when
the parent returns.
"""

from __future__ import annotations

from collections import deque
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from router.core.wire import DEVICE_TIER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

Masks: TypeAlias = dict[int, int]


class Match(msgspec.Struct, gc=False):
    """How many blocks of a prompt's prefix each slot holds.

    `held`: blocks that the rank has said it holds. `reach`: the same with predicted ones. `lower`: of
    the held ones, those found only in a tier below the device, by tier. Slots that hold nothing are absent.
    """

    held: dict[int, int]
    reach: dict[int, int]
    lower: dict[str, dict[int, int]]


class Index:
    """The tables, and the slots."""

    def __init__(self) -> None:
        self.tiers: dict[str, Masks] = {DEVICE_TIER: {}}
        self.predicted: Masks = {}
        self._live = 0
        self._free: list[int] = []
        self._next_slot = 0
        self._retired: deque[tuple[int, deque[tuple[Masks, Iterator[int]]]]] = deque()

    def take_slot(self) -> int:
        """Return an unused slot, counted as live from now on."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._next_slot
            self._next_slot += 1
        self._live |= 1 << slot
        return slot

    def masks(self, tier: str) -> Masks:
        """Return a tier's table, made when first asked for."""
        return self.tiers.setdefault(tier, {})

    def retire(self, slot: int, marks: Iterable[tuple[Masks, Iterator[int]]]) -> None:
        """Take a slot out of every later match, at once; `marks` are the tables and keys it stands in."""
        self._live &= ~(1 << slot)
        self._retired.append((slot, deque(marks)))

    def sweep(self, portion: int) -> bool:
        """Clear up to `portion` marks of retired slots, about 0.2 us each; say whether any are left."""
        while self._retired:
            slot, marks = self._retired[0]
            while marks:
                masks, keys = marks[0]
                for key in islice(keys, portion):
                    strike(masks, key, 1 << slot)
                    portion -= 1
                if portion <= 0:
                    return True
                marks.popleft()
            self._retired.popleft()
            self._free.append(slot)
        return False

    def match(self, keys: Iterable[int]) -> Match:
        """Return how far each live slot holds the prefix `keys`.

        Cost: about 0.15 us a block, until no slot holds any more, and 0.2 us a slot.
        """
        found = Match({}, {}, {})
        device, predicted = self.tiers[DEVICE_TIER].get, self.predicted.get
        lowers = [(tier, masks) for tier, masks in self.tiers.items() if tier != DEVICE_TIER and masks]
        holding = reaching = self._live
        depth = 0
        for key in keys:
            held = device(key, 0)
            if lowers:
                held |= _below(lowers, key, holding & ~held, found.lower)
            reach = (held | predicted(key, 0)) & reaching
            held &= holding
            if held != holding:
                _record(found.held, holding & ~held, depth)
                holding = held
            if reach != reaching:
                _record(found.reach, reaching & ~reach, depth)
                reaching = reach
                if not reach:
                    return found
            depth += 1
        _record(found.held, holding, depth)
        _record(found.reach, reaching, depth)
        return found


def _below(lowers: list[tuple[str, Masks]], key: int, missing: int, counts: dict[str, dict[int, int]]) -> int:
    """Return the slots that hold a block in a lower tier; those `missing` it above are counted, once."""
    found = 0
    for tier, masks in lowers:
        here = masks.get(key, 0)
        found |= here
        here &= missing
        if here:
            missing &= ~here
            of_tier = counts.setdefault(tier, {})
            for slot in _slots(here):
                of_tier[slot] = of_tier.get(slot, 0) + 1
    return found


def strike(masks: Masks, key: int, bit: int) -> None:
    """Clear one bit of a key's mask, and the entry with its last bit."""
    mask = masks.get(key)
    if mask is None:
        return
    left = mask & ~bit
    if left:
        masks[key] = left
    else:
        del masks[key]


def _slots(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _record(depths: dict[int, int], slots: int, depth: int) -> None:
    if not depth:
        return
    if not slots & (slots - 1):
        # One rank drops out at a time, mostly.
        if slots:
            depths[slots.bit_length() - 1] = depth
        return
    for slot in _slots(slots):
        depths[slot] = depth
