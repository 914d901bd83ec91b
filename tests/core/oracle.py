"""What views must show, kept the simple way: dictionaries of paths, and no index at all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TypeAlias

# A namespace (adapter, salt), and the contents of the blocks from the root on.
Space: TypeAlias = tuple[str | None, str | None]
Path: TypeAlias = tuple[Space, tuple[int, ...]]
Place: TypeAlias = tuple[str, int]

FULL = "full_attention"


@dataclass
class Run:
    """Blocks `path[start:]` under their parent, stored together."""

    path: Path
    start: int
    place: Place

    @property
    def parent(self) -> Path | None:
        space, blocks = self.path
        return (space, blocks[: self.start]) if self.start else None

    @property
    def blocks(self) -> list[Path]:
        space, blocks = self.path
        return [(space, blocks[: end + 1]) for end in range(self.start, len(blocks))]


@dataclass
class Oracle:
    """One rank. `copies` by place (tier and group) and path."""

    counts_copies: bool
    ttl: float
    copies: dict[Place, Counter[Path]] = field(default_factory=dict)
    groups: set[int] = field(default_factory=set)
    orphans: list[Run] = field(default_factory=list)
    predicted: dict[Path, float] = field(default_factory=dict)
    reported: dict[Path, float] = field(default_factory=dict)

    def store(self, run: Run, now: float) -> None:
        self.groups.add(run.place[1])
        if run.parent is not None and not self.knows(run.parent):
            self.orphans.append(run)
            return
        waiting = [run]
        while waiting:
            one = waiting.pop(0)
            if one.parent is not None and not self.knows(one.parent):
                self.orphans.append(one)
                continue
            self._hold(one, now)
            blocks = one.blocks
            children = [child for block in blocks for child in self.orphans if child.parent == block]
            self.orphans = [child for child in self.orphans if child not in children]
            waiting[:0] = children

    def _hold(self, run: Run, now: float) -> None:
        held = self.copies.setdefault(run.place, Counter())
        first = run.blocks[0]
        again = self.counts_copies
        if run.parent is None:
            if held[first]:
                again = again and now - self.reported.get(first, -1e9) <= 1.0
            else:
                self.reported[first] = now
        for block in run.blocks:
            if not held[block] or again:
                held[block] += 1
            self.predicted.pop(block, None)

    def lift(self, paths: list[Path], place: Place) -> None:
        for path in paths:
            if self.knows(path):
                held = self.copies.setdefault(place, Counter())
                held[path] = held[path] or 1
                self.groups.add(place[1])

    def remove(self, paths: list[Path], place: Place) -> None:
        if self.groups and place[1] not in self.groups:
            return
        left = []
        for run in self.orphans:
            gone = [path in paths and run.place[0] == place[0] for path in run.blocks]
            keep = gone.index(True) if any(gone) else len(gone)
            if keep:
                left.append(Run((run.path[0], run.path[1][: run.start + keep]), run.start, run.place))
        self.orphans = left
        held = self.copies.get(place, Counter())
        for path in paths:
            if held[path]:
                held[path] -= 1
                if not held[path]:
                    self.predicted.pop(path, None)

    def reset(self) -> None:
        for part in (self.copies, self.groups, self.orphans, self.predicted, self.reported):
            part.clear()

    def contradict(self, path: Path, keep: int) -> None:
        space, blocks = path
        known = self.tree_depth(path)
        for end in range(keep + 1, len(blocks) + 1):
            self.predicted.pop((space, blocks[:end]), None)
            if end <= known:
                for held in self.copies.values():
                    held.pop((space, blocks[:end]), None)

    def tree_depth(self, path: Path) -> int:
        """A contradiction looks along the whole prompt."""
        return len(path[1])

    def knows(self, path: Path) -> bool:
        return any(held[path] for held in self.copies.values())

    def holds(self, path: Path) -> bool:
        groups = self.groups or {0}
        return all(
            any(held[path] for (_, group), held in self.copies.items() if group == one) for one in groups
        )

    def depth(self, path: Path, *, expected: bool = False) -> int:
        space, blocks = path
        for end in range(1, len(blocks) + 1):
            one = (space, blocks[:end])
            if not self.holds(one) and not (expected and one in self.predicted):
                return end - 1
        return len(blocks)

    def blocks(self, first_group: int) -> dict[str, int]:
        return {
            tier: sum(1 for count in held.values() if count)
            for (tier, group), held in self.copies.items()
            if group == first_group
        }
