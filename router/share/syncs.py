"""The weight sync under way: whose it is, and which workers it has paused. Known to the parent alone.

A process that dies leaves engines paused that nobody would continue: a trainer waits for the end of the sync,
and the other processes take a paused engine for the trainer's own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.fleet.effects import Begun, Ended

if TYPE_CHECKING:
    from router.fleet.effects import Effect


class Syncs:
    """One at a time; `paused` are workers' URLs. A process is called by its sender's name."""

    def __init__(self) -> None:
        self.paused: set[str] = set()
        self._by: str | None = None

    def begin(self, sender: str) -> bool:
        """Begin one, if there is none."""
        if self._by is not None:
            return False
        self._by = sender
        return True

    def is_by(self, sender: str) -> bool:
        """Whether it is a process's."""
        return self._by == sender

    def end(self, sender: str) -> None:
        """End it, if it is a process's; what it could not continue, that process has logged."""
        if self._by == sender:
            self._by = None
            self.paused.clear()

    def note(self, sender: str, effect: Effect) -> None:
        """Note what a process tells of its calls."""
        if self._by != sender:
            return
        match effect:
            case Begun(action="pause"):
                self.paused.add(effect.url)
            case Ended(action="pause", answered=True, ok=False) | Ended(action="continue", ok=True):
                self.paused.discard(effect.url)

    def hand_over(self, sender: str) -> list[str]:
        """Make what is paused another process's to continue, or nobody's yet (""); return the workers."""
        self._by = sender if self.paused else None
        return sorted(self.paused)
