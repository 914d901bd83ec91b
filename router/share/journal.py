"""What the operator has done to the fleet at run time, as the parent keeps it for processes that start later.

Workers of the settings and of discovery every process finds by itself. Changes by the operator are put in
order here: what two processes are asked to do at once, all do in one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.fleet.effects import Added, Drained, Effect, Removed
from router.share.names import name_of

if TYPE_CHECKING:
    from collections.abc import Iterable


class Journal:
    """Changes by the name that all spellings of a worker's URL have in common."""

    def __init__(self) -> None:
        self._added: dict[str, Added] = {}
        self._drained: dict[str, Drained] = {}
        self._removed: dict[str, Removed] = {}
        self._leaving: set[str] = set()

    def effects(self, present: Iterable[str] = ()) -> list[Effect]:
        """Return what has to be done to a fleet that nobody has touched yet.

        A worker that was removed and is `present` elsewhere has come back, because its source has had news.
        """
        for url in present:
            self._removed.pop(name_of(url), None)
        return [*self._removed.values(), *self._added.values(), *self._drained.values()]

    def note(self, effect: Effect) -> bool:
        """Note a change; False: a worker that is to be added is there, or on its way out."""
        match effect:
            case Added():
                return self._add(name_of(effect.spec.url), effect)
            case Drained(on=True):
                self._drained[name_of(effect.url)] = effect
            case Drained():
                self._drained.pop(name_of(effect.url), None)
            case Removed():
                self._remove(name_of(effect.url), effect)
        return True

    def left(self, url: str) -> None:
        """Note that a removed worker is gone from every process."""
        self._leaving.discard(name_of(url))

    def _add(self, name: str, added: Added) -> bool:
        if name in self._added or name in self._leaving:
            return False
        self._added[name] = added
        self._removed.pop(name, None)
        return True

    def _remove(self, name: str, removed: Removed) -> None:
        self._drained.pop(name, None)
        self._leaving.add(name)
        if self._added.pop(name, None) is None:
            self._removed[name] = Removed(removed.url, 0.0)
