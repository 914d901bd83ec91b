"""The sources of one fleet, at work."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from router.fleet.discovery.wanted import as_wanted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from router.fleet.discovery.reconciler import Reconciler
    from router.fleet.discovery.wanted import Source
    from router.fleet.spec import WorkerSpec

# The workers of the settings; they decide where another source has the same one.
_SETTINGS = "settings"
_log = logging.getLogger(__name__)


class Discovery:
    """Runs sources and their reconciler; `given` are the workers of the settings, which the fleet has."""

    def __init__(
        self, reconciler: Reconciler, sources: Sequence[Source], given: Iterable[WorkerSpec]
    ) -> None:
        self._reconciler = reconciler
        self._sources = sources
        self._tasks: list[asyncio.Task[None]] = []
        reconciler.hold(_SETTINGS, as_wanted(given))

    def start(self) -> None:
        """Begin to follow the sources; needs a running loop."""
        tell = self._reconciler.tell
        runs = [self._reconciler.run(), *(each.run(partial(tell, each.name)) for each in self._sources)]
        self._tasks = [asyncio.ensure_future(run) for run in runs]
        for task in self._tasks:
            task.add_done_callback(_ended)

    def settings(self, workers: Iterable[WorkerSpec]) -> None:
        """Take the workers of settings that were read again."""
        self._reconciler.tell(_SETTINGS, as_wanted(workers))

    def failing(self) -> dict[str, bool]:
        """Return by a source's name whether it cannot be read now."""
        return {source.name: source.failing for source in self._sources}

    async def close(self) -> None:
        """Follow nothing any more; the fleet stays as it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _ended(task: asyncio.Task[None]) -> None:
    """Say that something has ended which never should; the fleet stays as it is."""
    if not task.cancelled():
        _log.error("discovery has failed and follows no more", exc_info=task.exception())
