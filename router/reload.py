"""Settings that are read again: on SIGHUP, and whenever the file of --config has changed.

What can change while the router runs is taken up; streams, views and requests are not touched. What cannot is
named in one line of the log. Settings that are wrong change nothing. Files are read and checked in a thread:
it takes seconds when one is large.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from router.config import OPTIONS
from router.errors import ConfigError
from router.front import check_routes
from router.layers import config_path, load
from router.watched import followed, settled, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from collections.abc import Set as AbstractSet

    from router.config import Config
    from router.layers import Flags
    from router.live import Live

_log = logging.getLogger(__name__)


class Reload:
    """`flags` and `environ` are those that the router was started with: they still beat the file."""

    def __init__(self, config: Config, live: Live, flags: Flags, environ: Mapping[str, str]) -> None:
        self._config = config
        self._live = live
        self._flags = flags
        self._environ = environ
        self._path = config_path(flags, environ)
        self._seen = stamp(self._path) if self._path is not None else ()
        self._waiting: set[str] = set()
        self._lock = asyncio.Lock()
        self._asked: set[asyncio.Task[None]] = set()
        self.on_taken: Callable[[Config], None] | None = None

    def ask(self) -> None:
        """Have all read again soon; for a signal's handler."""
        task = asyncio.create_task(self.now())
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def now(self) -> None:
        """Read all settings, keys and certificates again."""
        await self._live.front.reload()
        if not await self._settings():
            _log.info("read the settings again: none that can be taken up has changed")

    async def watch(self) -> None:
        """Read the file again whenever it has changed, until cancelled."""
        if self._path is not None:
            await followed(self._path, self._turn)

    async def _turn(self, path: str) -> None:
        seen = await settled(path, self._seen)
        await self._settings()
        self._seen = seen

    async def _settings(self) -> bool:
        """Take up what has changed; say whether anything was said of it."""
        async with self._lock:  # of two readings the later one counts
            try:
                new = await asyncio.to_thread(self._read)
            except ConfigError as error:
                _log.error("the settings stay what they were: %s", error.message)
                return True
            return await self._take(new)

    def _read(self) -> Config:
        new = load(self._flags, self._environ)
        check_routes(new)
        return new

    async def _take(self, new: Config) -> bool:
        changed = {field.name for field in fields(new) if _differ(self._config, new, field.name)}
        taken = changed & self._live.names
        if taken:
            before = self._config
            self._config = _with(before, new, taken)
            refused = await self._live.take(self._config)
            self._config = _with(self._config, before, refused)
            if self.on_taken is not None:
                self.on_taken(self._config)
            if taken - refused:
                _log.info("settings changed: %s", _flags(taken - refused))
        self._say_waiting(changed - taken)
        return bool(taken)

    def _say_waiting(self, waiting: set[str]) -> None:
        """Say what a restart is needed for, once for as long as it is the same."""
        if waiting - self._waiting:
            _log.warning("settings changed that need a restart: %s", _flags(waiting))
        self._waiting = waiting


def _with(config: Config, other: Config, names: AbstractSet[str]) -> Config:
    return replace(config, **{name: getattr(other, name) for name in names})


def _differ(old: Config, new: Config, name: str) -> bool:
    before: Any = getattr(old, name)
    return bool(before != getattr(new, name))


def _flags(names: set[str]) -> str:
    return ", ".join(option.flag for name, option in OPTIONS.items() if name in names)
