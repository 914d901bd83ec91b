"""Stored blocks whose parent is not known yet (a late join, a gap).

Their keys cannot be made without the parent's, so they are kept apart by the parent's hash, count for
nothing, and join when the parent comes. Never attached to the root: that would be a false hit.
"""

from __future__ import annotations

from collections import Counter, OrderedDict

from router.core.events import Hash, Stored

# Of tokens, in bytes: blocks can be of any size.
_MOST_BYTES = 64 * 2**20


class Orphans:
    """At most `bound` blocks, the oldest runs leave first."""

    __slots__ = ("_bound", "_bytes", "_members", "_runs", "blocks")

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._runs: OrderedDict[Hash, list[Stored]] = OrderedDict()
        # How often each hash is among the runs: most removals are of none of them.
        self._members: Counter[Hash] = Counter()
        self.blocks = self._bytes = 0

    def keep(self, run: Stored) -> None:
        """Hold a run until its parent is stored."""
        assert run.parent is not None  # noqa: S101 - a run without a parent starts at the root
        self._runs.setdefault(run.parent, []).append(run)
        self._count(run)
        while self.blocks > self._bound or self._bytes > _MOST_BYTES:
            _, runs = self._runs.popitem(last=False)
            for old in runs:
                self._discount(old)

    def claim(self, parents: list[Hash]) -> list[Stored]:
        """Return, and let go of, the runs that any of these hashes is the parent of."""
        if not self._runs:
            return []
        claimed = [run for parent in parents for run in self._runs.pop(parent, ())]
        for run in claimed:
            self._discount(run)
        return claimed

    def drop(self, hashes: list[Hash], tier: str) -> None:
        """Forget runs from the first of these removed blocks on, in that tier."""
        gone = self._members.keys() & hashes if self._runs else None
        if not gone:
            return
        for parent, runs in list(self._runs.items()):
            left = [kept for run in runs if (kept := _before(run, gone, tier)).hashes]
            for run in runs:
                self._discount(run)
            for run in left:
                self._count(run)
            if left:
                self._runs[parent] = left
            else:
                del self._runs[parent]

    def clear(self) -> None:
        """Forget all."""
        self._runs = OrderedDict()
        self._members = Counter()
        self.blocks = self._bytes = 0

    def _count(self, run: Stored) -> None:
        self.blocks += len(run.hashes)
        self._bytes += len(run.tokens)
        self._members.update(run.hashes)

    def _discount(self, run: Stored) -> None:
        self.blocks -= len(run.hashes)
        self._bytes -= len(run.tokens)
        for block in run.hashes:
            if self._members[block] > 1:
                self._members[block] -= 1
            else:
                del self._members[block]


def _before(run: Stored, gone: set[Hash], tier: str) -> Stored:
    """Return the part of a run before its first removed block."""
    if run.tier != tier:
        return run
    keep = next((i for i, block in enumerate(run.hashes) if block in gone), len(run.hashes))
    if keep == len(run.hashes):
        return run
    width = 4 * run.block_size
    return Stored(
        run.hashes[:keep],
        run.parent,
        run.tokens[: keep * width + 4 * run.bigram],
        run.block_size,
        run.bigram,
        run.tier,
        run.lora,
        run.cache_salt,
        run.extras[:keep] if run.extras else None,
        run.group,
        run.kind,
    )
