"""Where the lines of the log leave the process: a queue, and a thread that writes, so that nobody waits.

Who reads stderr may stop reading; a write to a full pipe then waits for ever, and with it the event loop,
requests and signals. So lines that find no place in the queue are dropped, and when it goes on again their
number is told. A descriptor that cannot be written to at all loses its lines.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# What may wait to be written, and how long the end of the process waits for it, in seconds.
MOST_BYTES, FLUSH_SECONDS = 2**20, 2.0


class Outlet(logging.Handler):
    """Writes to a file descriptor from a thread of its own; a line costs its formatting and about 2 us.

    Each line is one write, so that those of several processes do not mix as long as a pipe takes them whole.
    """

    def __init__(self, descriptor: int = 2) -> None:
        super().__init__()
        self._descriptor = descriptor
        # Unlike queue.Queue it can be put into by a signal's handler that has interrupted another put.
        self._queue: SimpleQueue[bytes | Callable[[], object] | None] = SimpleQueue()
        # Bytes that were ever put in, counted under the handler's lock, and taken out, by the thread alone.
        self._put = self._taken = 0
        self._lost = 0
        threading.Thread(target=self._run, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Queue a record's line, or count it as lost."""
        try:
            line = self._line(record)
        except Exception:  # noqa: BLE001 - logging's own way would write to stderr, and wait
            line = self._line(_record(logging.ERROR, "a line of %s cannot be put together", record.name))
        if self._put - self._taken + len(line) > MOST_BYTES:
            self._lost += 1
        else:
            self._put += len(line)
            self._queue.put(line)

    def flush(self) -> None:
        """Wait until everything is written, for `FLUSH_SECONDS` at most."""
        written = threading.Event()
        self._queue.put(written.set)
        written.wait(FLUSH_SECONDS)

    def close(self) -> None:
        """Write nothing more than what is queued."""
        self._queue.put(None)
        super().close()

    def _line(self, record: logging.LogRecord) -> bytes:
        return f"{self.format(record)}\n".encode(errors="backslashreplace")

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            if isinstance(item, bytes):
                self._write(item)
                self._taken += len(item)
            else:
                item()
            if self._lost and self._queue.empty():
                self._tell()

    def _tell(self) -> None:
        """Say how many lines are missing here."""
        self.acquire()
        lost, self._lost = self._lost, 0
        self.release()
        said = "%d lines of the log are lost: they were not read in time"
        self._write(self._line(_record(logging.WARNING, said, lost)))

    def _write(self, line: bytes) -> None:
        left = memoryview(line)
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
            except BlockingIOError:  # somebody who shares it has set it so
                select.select([], [self._descriptor], [])
            except OSError:
                return


def _record(level: int, message: str, about: object) -> logging.LogRecord:
    return logging.LogRecord(__name__, level, __file__, 0, message, (about,), None)
