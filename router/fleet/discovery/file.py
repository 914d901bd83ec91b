"""A file with a list of workers, YAML or JSON, that is followed.

One that cannot be read, or holds something wrong, changes nothing, and that is said once.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from router.config_file import read_list
from router.errors import ConfigError
from router.fleet.discovery.wanted import as_wanted
from router.fleet.roster import place_of
from router.fleet.spec import WorkerSpec, from_mapping, parse_worker
from router.watched import settled, stamp

if TYPE_CHECKING:
    from router.fleet.discovery.wanted import Tell
    from router.setting import Given

_log = logging.getLogger(__name__)


def read_workers(path: str) -> list[WorkerSpec]:
    """Return the workers of a file: a list of what --worker takes, or of mappings with url and the same keys.

    Raises ConfigError, one line, with path and line.
    """
    workers: dict[object, WorkerSpec] = {}
    for given in read_list(path):
        spec = _spec(given)
        if place_of(spec.url) in workers:
            raise ConfigError(f"{given.source}: worker {spec.url} is given twice")
        workers[place_of(spec.url)] = spec
    return list(workers.values())


def _spec(given: Given) -> WorkerSpec:
    try:
        if isinstance(given.value, str):
            return parse_worker(given.value)
        if isinstance(given.value, dict):
            return from_mapping(dict(given.value.items()))
        return from_mapping({"url": given.value})
    except ConfigError as error:
        raise error.at(given.source) from None


class FileSource:
    """Raises ConfigError, one line, when the file cannot be used at the start."""

    def __init__(self, path: str) -> None:
        self.name = f"file {path}"
        self.failing = False
        self._path = path
        self._seen = stamp(path)
        self._workers = read_workers(path)

    async def run(self, tell: Tell) -> None:
        """Follow the file."""
        tell(as_wanted(self._workers))
        while True:
            self._seen = await settled(self._path, self._seen)
            try:
                self._workers = await asyncio.to_thread(read_workers, self._path)  # a large one takes seconds
            except Exception as error:
                self.failing = True
                if not isinstance(error, ConfigError):
                    raise
                _log.error("the workers stay what they were: %s", error.message)
            else:
                self.failing = False
                tell(as_wanted(self._workers))
