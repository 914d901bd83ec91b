"""How many come at once for a prefix: as many as came together when it was last asked for.

A crowd is who asks for one prefix within a second. A prefix is known by the key of its last block, the
deepest that any rank had of the prompt. That a crowd will come again is learnt from its having come twice;
when a view is emptied all is forgotten, since what is copied now may be gone before the next crowd, too.
"""

from __future__ import annotations

# Who comes later than that after the first is of another crowd.
CROWD_SECONDS = 1.0
# Prefixes remembered, those asked for last; about 200 bytes each.
_BOUND = 4096


class Crowds:
    """Of each prefix when its latest crowd began, how many that has by now, and how many those before had."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[float, int, float]] = {}

    def note(self, prefix: int, now: float) -> None:
        """Somebody asks for a prefix. About 0.4 us."""
        known = self._known
        began, count, before = known.pop(prefix, (now, 0, 0.0))
        if now - began > CROWD_SECONDS:
            before = (before + count) / 2 if before else float(count)
            began, count = now, 0
        known[prefix] = (began, count + 1, before)
        if len(known) > _BOUND:
            del known[next(iter(known))]

    def expected(self, prefix: int) -> float:
        """Return how many come at once for a prefix, 0 when it has not been asked for twice."""
        known = self._known.get(prefix)
        return known[2] if known is not None else 0.0

    def clear(self) -> None:
        """Forget them."""
        self._known.clear()
