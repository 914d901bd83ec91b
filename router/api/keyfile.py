"""The file of clients' keys, read again whenever it changes: keys can be given and taken away at any time.

Once requests are served it is read in a thread: a large file is hashed for long.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from router.api.keys import ClientLimits, default_name, digest_of, read_keys
from router.errors import ConfigError
from router.named_file import read_named
from router.watched import followed, settled, stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.api.keys import Keyring, Keys

_MOST_BYTES = 2**24  # a hundred thousand keys and more
_log = logging.getLogger(__name__)


class KeyFile:
    """Fills a keyring from a file, if there is one, and from keys given otherwise.

    A file that cannot be read, or holds something wrong, changes nothing after the start: the keys that were
    held last go on to hold.
    """

    __slots__ = ("_given", "_held", "_lock", "_on_read", "_path", "_ring", "_seen")

    def __init__(self, ring: Keyring, path: str | None, given: Sequence[str]) -> None:
        self._ring = ring
        self._path = path
        self._given = given
        self._seen: tuple[int, ...] = ()
        self._held: Keys = {}
        self._lock = asyncio.Lock()
        self._on_read: Callable[[Keys], None] | None = None

    def begin(self, last: Keys | None) -> None:
        """Read the keys; where that fails, hold those that another process of the router has held `last`.

        Raises ConfigError as `load` does, when there are none.
        """
        try:
            self.load()
        except ConfigError as error:
            if last is None:
                raise
            self._stay(error)
            self._hold(last)

    def tell(self, on_read: Callable[[Keys], None]) -> None:
        """Have somebody told of the keys that are held, now and whenever they change."""
        self._on_read = on_read
        on_read(self._held)

    async def give(self, keys: Sequence[str]) -> bool:
        """Take other keys than those given at the start; say whether they hold now."""
        if keys == self._given:
            return True
        before, self._given = self._given, keys
        if await self.reload():
            return True
        self._given = before
        return False

    def load(self) -> None:
        """Read the keys; raises ConfigError, one line, which shows no key."""
        self._take(*self._read(self._given))

    def _read(self, given: Sequence[str]) -> tuple[tuple[int, ...], Keys]:
        """Return the file's stamp, and the keys; changes nothing. Raises ConfigError."""
        seen, keys = self._stamp(), dict[bytes, tuple[str, ClientLimits]]()
        for key in given:
            digest = digest_of(key)
            keys[digest] = default_name(digest), ClientLimits()
        if self._path is not None:
            read_keys(self._text(self._path), keys, self._path)
        if not keys:
            raise ConfigError(f"{self._path or '--api-key'}: expected a key, found none")
        return seen, keys

    def _take(self, seen: tuple[int, ...], keys: Keys) -> None:
        self._hold(keys)
        self._seen = seen

    async def reload(self) -> bool:
        """Read them again; what is wrong is logged, the keys stay what they were, and False is returned."""
        async with self._lock:
            try:
                self._take(*await asyncio.to_thread(self._read, self._given))
            except ConfigError as error:
                self._stay(error)
                return False
            _log.info("read the keys of %d clients", len(self._ring.clients()))
            return True

    def _stay(self, error: ConfigError) -> None:
        self._seen = self._stamp()
        _log.error("the keys stay what they were: %s", error.message)

    def _hold(self, keys: Keys) -> None:
        self._held = keys
        self._ring.hold(keys)
        if self._on_read is not None:
            self._on_read(keys)

    async def watch(self) -> None:
        """Read the file again whenever it has changed, for ever."""
        if self._path is not None:
            await followed(self._path, self._turn)

    async def _turn(self, path: str) -> None:
        await settled(path, self._seen)
        await self.reload()

    def _text(self, path: str) -> str:
        try:
            return read_named(path, _MOST_BYTES).decode()
        except OSError as error:
            raise ConfigError(f"--api-keys: the file cannot be read: {error.strerror}") from None
        except UnicodeDecodeError:
            raise ConfigError("--api-keys: expected UTF-8 text") from None

    def _stamp(self) -> tuple[int, ...]:
        return stamp(self._path) if self._path is not None else ()
