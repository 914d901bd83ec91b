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
    from router.fleet.discovery.wanted import Source, Wanted
    from router.fleet.spec import WorkerSpec

# The workers of the settings; they decide where another source has the same one.
_SETTINGS = "settings"
_AGAIN_SECONDS = 5.0
_log = logging.getLogger(__name__)


class Discovery:
    """Runs sources and their reconciler; `given` are the workers of the settings, which the fleet has."""

    def __init__(
        self, reconciler: Reconciler, sources: Sequence[Source], given: Iterable[WorkerSpec]
    ) -> None:
        self._reconciler = reconciler
        self._sources = sources
        self._ended: set[str] = set()
        self._tasks: list[asyncio.Task[None]] = []
        reconciler.hold(_SETTINGS, as_wanted(given))

    def start(self) -> None:
        """Begin to follow the sources; needs a running loop."""
        runs = [self._reconciler.run(), *map(self._follow, self._sources)]
        self._tasks = [asyncio.ensure_future(run) for run in runs]

    async def _follow(self, source: Source) -> None:
        """Run a source until cancelled, again whenever it has ended, which none ever should."""
        while True:
            try:
                await source.run(partial(self._tell, source.name))
            except Exception:  # noqa: BLE001 - no error is to end it
                _log.exception("discovery: %s has failed; its workers stay what they were", source.name)
            self._ended.add(source.name)
            await asyncio.sleep(_AGAIN_SECONDS)

    def _tell(self, source: str, wanted: Sequence[Wanted]) -> None:
        self._ended.discard(source)
        self._reconciler.tell(source, wanted)

    def settings(self, workers: Iterable[WorkerSpec]) -> None:
        """Take the workers of settings that were read again."""
        self._reconciler.tell(_SETTINGS, as_wanted(workers))

    def failing(self) -> dict[str, bool]:
        """Return by a source's name whether it cannot be read now."""
        all_fail, ended = self._reconciler.failing, self._ended
        return {each.name: all_fail or each.failing or each.name in ended for each in self._sources}

    async def close(self) -> None:
        """Follow nothing any more; the fleet stays as it is."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
