"""The thread that writes a record.

It takes what the loop has put down, a few times a second, and lets the loop run in between: it gives way
after every few pieces of work, and compressing and writing hold nobody up. When the disk fails, or cannot
keep up, the record ends with one line in the log, and nothing else does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from router.records.format import block, packed

if TYPE_CHECKING:
    from router.records.entries import Entry
    from router.records.files import Files
    from router.records.items import Item
    from router.records.scribe import Scribe

# What may wait to be written: things, and bytes that they hold.
_MOST_ITEMS, _MOST_HELD = 100_000, 128 * 2**20
_TURN_SECONDS = 0.05
# A block is written when it has so many entries, of so many bytes held, or is so old: what a crash costs.
_BLOCK_ENTRIES, _BLOCK_HELD, _BLOCK_SECONDS = 2000, 2**20, 0.5
_JOIN_SECONDS = 10.0
_SLOW = "the disk cannot keep up"
_log = logging.getLogger(__name__)


class Writer:
    """`put` may be called until it says that the record has ended; `bytes` have been written."""

    def __init__(self, scribe: Scribe, files: Files) -> None:
        self._scribe = scribe
        self._files = files
        self._items: deque[Item] = deque()
        self._entries: list[Entry] = []
        self._begun = 0.0
        self._put_bytes = self._done_bytes = self._flushed_bytes = 0
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="record", daemon=True)
        self.bytes = 0
        self.ended = ""

    def start(self) -> None:
        """Begin the first part, now: raises OSError when there cannot be one."""
        self._begin()
        self._flush()
        self._thread.start()

    def put(self, item: Item, held: int = 0) -> None:
        """Take something to write, which holds so many bytes of memory; about 0.2 us."""
        self._items.append(item)
        self._put_bytes += held
        if len(self._items) > _MOST_ITEMS or self._put_bytes - self._done_bytes > _MOST_HELD:
            self._end(_SLOW)

    def close(self) -> None:
        """Write what there is and stop; waits for the disk, though not for ever."""
        self._closing.set()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self.ended:
            last = self._closing.wait(_TURN_SECONDS)
            try:
                self._turn()
                if last:
                    self._flush()
                    self._files.close()
                    return
            except OSError as error:
                of = f"{error.filename}: " if error.filename else ""
                self._end(f"{of}{error.strerror or error}")
            except Exception as error:  # noqa: BLE001 - see below
                # Whatever is wrong with it, it is the record's end and nothing else.
                _log.exception("what happens could not be recorded")
                self._end(type(error).__name__)

    def _turn(self) -> None:
        self._files.check()
        while self._items and not self.ended:
            item = self._items.popleft()
            if not self._entries:
                self._begun = time.monotonic()
            self._entries += self._scribe.written(item)
            self._done_bytes += getattr(item, "held", 0)
            if self._is_large():
                self._flush()
            time.sleep(0)
        if self._entries and time.monotonic() - self._begun > _BLOCK_SECONDS:
            self._flush()

    def _is_large(self) -> bool:
        held = self._done_bytes - self._flushed_bytes
        return len(self._entries) >= _BLOCK_ENTRIES or held >= _BLOCK_HELD

    def _flush(self) -> None:
        if self._entries:
            entries, self._entries = self._entries, []
            self._flushed_bytes = self._done_bytes
            self._write(entries)
        if self._files.full:
            self._begin()

    def _begin(self) -> None:
        self._files.begin()
        self._write(self._scribe.head(self._files.part))

    def _write(self, entries: list[Entry]) -> None:
        written = block(packed(entries))
        self._files.write(written)
        self.bytes += len(written)

    def _end(self, why: str) -> None:
        """Stop recording."""
        if not self.ended:
            self.ended = why
            self._items.clear()
            _log.error("recording has stopped: %s", why)
