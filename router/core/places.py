"""Where the blocks of one rank lie: its tiers, and its groups of full attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.events import Stored
    from router.core.states import States

# Only full attention says that a prefix is usable; sliding windows and Mamba groups do not (vLLM 0.32).
_PREFIX_KINDS = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
MAX_TIERS = 8
MAX_GROUPS = 8


class Places:
    """The planes that one slot uses, found by tier and group; `tiers` by name.

    `known`: those of stores such as have come before, by tier, group and kind of group.
    """

    __slots__ = ("_bit", "_groups", "_states", "known", "tiers")

    def __init__(self, states: States, bit: int) -> None:
        self._states = states
        self._bit = bit
        self.tiers: dict[str, int] = {}
        self._groups: dict[int, int] = {}
        self.known: dict[tuple[str, int, str | None], int] = {}

    def group(self, event: Stored) -> int | None:
        """Return the number of an event's group among those of full attention, None when it is none.

        Engines that do not say what a group is (before vLLM 0.32) are taken by their first.
        """
        group = self._groups.get(event.group)
        if event.kind is None:
            return group if group is not None or self._groups else 0
        if event.kind not in _PREFIX_KINDS or (group is None and len(self._groups) >= MAX_GROUPS):
            return None
        return len(self._groups) if group is None else group

    def is_one_too_many(self, tier: str) -> bool:
        """Say whether there are as many tiers as there may be, and this is another one."""
        return tier not in self.tiers and (len(self.tiers) >= MAX_TIERS or not self._states.has_room(tier))

    def open(self, event: Stored, number: int) -> int:
        """Return the plane of a store; a rank's further groups must then hold every block too."""
        if event.group not in self._groups:
            self._groups[event.group] = number
            if number:
                self._states.group_slot(number, self._bit)
        if event.tier not in self.tiers:
            self.tiers[event.tier] = self._states.plane(event.tier, 0)
        plane = self._states.plane(event.tier, number) if number else self.tiers[event.tier]
        self.known[event.tier, event.group, event.kind] = plane
        return plane

    def skips(self, group: int) -> bool:
        """Say whether events of a group are none of this view's."""
        return bool(self._groups) and group not in self._groups

    def plane(self, tier: str, group: int) -> int | None:
        """Return the plane of a tier and group, None when nothing was ever stored in the tier."""
        if tier not in self.tiers:
            return None
        number = self._groups.get(group)
        return self._states.plane(tier, number) if number else self.tiers[tier]
