"""Which ranks hold a block, as small numbers.

Many blocks are held by the same ranks, so each distinct holding is kept once and blocks refer to it by
number. A holding is one bitmask of slots per plane; a plane is a tier of one full-attention group. A rank
holds a block when each of its groups does, in any tier.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from router.core.bits import Bits
from router.core.events import DEVICE_TIER

if TYPE_CHECKING:
    from collections.abc import Iterable

Masks: TypeAlias = tuple[int, ...]
Plane: TypeAlias = tuple[str, int]

NOBODY = 0
# Of all ranks together, for they are never forgotten; engines name less than ten.
MOST_TIERS = 16


class States:
    """Of state n: `masks[n]` its planes, `held[n]` the slots that hold it, `device[n]` those on a device.

    `bits` are those of `held`.
    """

    def __init__(self) -> None:
        self.planes: dict[Plane, int] = {(DEVICE_TIER, 0): 0}
        self.masks: list[Masks] = [()]
        self.held: list[int] = [0]
        self.device: list[int] = [0]
        self.bits = Bits(self.held)
        self._numbers: dict[Masks, int] = {(): NOBODY}
        self._unused: list[int] = []
        self._grouped: list[int] = []
        self._seen: set[int] | None = None
        self._alone: dict[tuple[int, int], int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def plane(self, tier: str, group: int) -> int:
        """Return the number of a plane, made when first asked for."""
        return self.planes.setdefault((tier, group), len(self.planes))

    def has_room(self, tier: str) -> bool:
        """Say whether a tier is known, or may become so."""
        return (tier, 0) in self.planes or sum(not group for _, group in self.planes) < MOST_TIERS

    def holds(self, state: int, plane: int, bit: int) -> bool:
        """Say whether a state has a slot's bit in a plane."""
        masks = self.masks[state]
        return plane < len(masks) and masks[plane] & bit != 0

    def add(self, state: int, plane: int, bit: int) -> int:
        """Return the state with a slot's bit set in a plane. About 0.5 us."""
        masks = self.masks[state]
        if not plane and len(masks) <= 1:
            return self._number((masks[0] | bit if masks else bit,))
        wide = [*masks, *(0 for _ in range(plane + 1 - len(masks)))]
        wide[plane] |= bit
        return self._number(tuple(wide))

    def alone(self, plane: int, slot: int) -> int:
        """Return the state of a block that one slot holds, in one plane. About 0.1 us."""
        number = self._alone.get((plane, slot))
        if number is None or self._seen is not None:
            number = self._alone[plane, slot] = self.add(NOBODY, plane, 1 << slot)
        return number

    def take(self, state: int, plane: int, bit: int) -> int:
        """Return the state with a slot's bit cleared in a plane. About 0.5 us."""
        masks = self.masks[state]
        if plane >= len(masks) or not masks[plane] & bit:
            return state
        left = list(masks)
        left[plane] &= ~bit
        return self._number(_trimmed(left))

    def keep(self, state: int, slots: int) -> int:
        """Return the state with these slots only."""
        return self._number(_trimmed([mask & slots for mask in self.masks[state]]))

    def group_slot(self, group: int, bit: int) -> None:
        """Ask of a slot from now on that its blocks are held in one more group, number `group`.

        Costs 1 us for each state; happens once for a rank of a model with several groups.
        """
        self._grouped += [0] * (group - len(self._grouped))
        self._grouped[group - 1] |= bit
        for number, masks in enumerate(self.masks):
            self.held[number], self.device[number] = self._usable(masks, ""), self._usable(masks, DEVICE_TIER)
        self.bits.clear()

    def release_slot(self, bit: int) -> None:
        """Forget what was asked of a slot."""
        self._grouped = [mask & ~bit for mask in self._grouped]

    def start_count(self) -> None:
        """Begin to note which states are in use; those given out meanwhile are."""
        self._seen = {NOBODY}

    def count(self, states: Iterable[int]) -> None:
        """Note states that are in use."""
        if self._seen is not None:
            self._seen.update(states)

    def end_count(self) -> None:
        """Forget the states that were not in use."""
        seen, self._seen = self._seen, None
        self._alone.clear()
        if seen is None:
            return
        for masks, number in list(self._numbers.items()):
            if number not in seen:
                del self._numbers[masks]
                self.masks[number] = ()
                self._unused.append(number)

    def _number(self, masks: Masks) -> int:
        number = self._numbers.get(masks)
        if number is None:
            number = self._enter(masks)
        if self._seen is not None:
            self._seen.add(number)
        return number

    def _enter(self, masks: Masks) -> int:
        if self._unused:
            number = self._unused.pop()
            self.masks[number] = masks
            self.bits.forget(number)
        else:
            number = len(self.masks)
            self.masks.append(masks)
            self.held.append(0)
            self.device.append(0)
        self.held[number] = masks[0] if len(masks) == 1 and not self._grouped else self._usable(masks, "")
        one_plane = len(masks) == 1 and not self._grouped
        self.device[number] = masks[0] if one_plane else self._usable(masks, DEVICE_TIER)
        self._numbers[masks] = number
        return number

    def _usable(self, masks: Masks, tier: str) -> int:
        """Return the slots that hold a block in each of their groups, in one tier or, with "", in any."""
        by_group = [0] * (len(self._grouped) + 1)
        for (name, group), plane in self.planes.items():
            if plane < len(masks) and (not tier or name == tier):
                by_group[group] |= masks[plane]
        usable = by_group[0]
        for group, asked in enumerate(self._grouped, 1):
            usable &= by_group[group] | ~asked
        return usable


def _trimmed(masks: list[int]) -> Masks:
    while masks and not masks[-1]:
        masks.pop()
    return tuple(masks)
