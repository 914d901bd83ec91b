"""Stored blocks whose parent is not known yet (a late join, a gap).

Their keys cannot be made without the parent's, so they are kept apart by the parent's hash, count for
nothing, and join when the parent comes. Never attached to the root: that would be a false hit.
"""

from __future__ import annotations

from collections import OrderedDict

from router.core.wire import Hash, Stored


class Orphans:
    """At most `bound` blocks, the oldest runs leave first."""

    __slots__ = ("_bound", "_runs", "blocks")

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._runs: OrderedDict[Hash, list[Stored]] = OrderedDict()
        self.blocks = 0

    def keep(self, run: Stored) -> None:
        """Hold a run until its parent is stored."""
        assert run.parent is not None  # noqa: S101 - a run without a parent starts at the root
        self._runs.setdefault(run.parent, []).append(run)
        self.blocks += len(run.hashes)
        while self.blocks > self._bound:
            _, runs = self._runs.popitem(last=False)
            self.blocks -= sum(len(old.hashes) for old in runs)

    def claim(self, parents: list[Hash]) -> list[Stored]:
        """Return, and let go of, the runs that any of these hashes is the parent of."""
        if not self._runs:
            return []
        claimed = [run for parent in parents for run in self._runs.pop(parent, ())]
        self.blocks -= sum(len(run.hashes) for run in claimed)
        return claimed

    def drop(self, hashes: list[Hash], tier: str) -> None:
        """Forget runs from the first of these removed blocks on, in that tier."""
        if not self._runs:
            return
        gone = set(hashes)
        for parent, runs in list(self._runs.items()):
            left = [kept for run in runs if (kept := _before(run, gone, tier)).hashes]
            self.blocks -= sum(len(run.hashes) for run in runs) - sum(len(run.hashes) for run in left)
            if left:
                self._runs[parent] = left
            else:
                del self._runs[parent]

    def clear(self) -> None:
        """Forget all."""
        self._runs.clear()
        self.blocks = 0


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
