"""The files of one session: a part after the other, the oldest of the directory deleted for room.

What a router has not written is not deleted, whatever it is called.
"""

from __future__ import annotations

import errno
import os
import re
from collections import deque
from stat import S_ISREG
from typing import TYPE_CHECKING

from router.records.format import MAGIC, SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

# A record has at least so many parts, so that deleting one does not delete most of it.
_PARTS = 8
_LARGEST_PART = 64 * 2**20
# As a recorder names its session; two at once may share a directory.
_SESSION = r"\d{8}T\d{6}Z-[0-9a-f]{8}"


class Files:
    """Writes blocks into `directory`; its records never take more than `most_bytes`. Raises OSError."""

    def __init__(self, directory: Path, session: str, most_bytes: int) -> None:
        self._directory = directory
        self._session = session
        self._most = most_bytes
        self._part_bytes = min(_LARGEST_PART, most_bytes // _PARTS)
        self._fd = -1
        self._path = directory
        self._size = 0
        self._others: deque[tuple[Path, int]] = deque()
        self.part = -1

    @property
    def full(self) -> bool:
        """Whether another part should begin."""
        return self._fd < 0 or self._size >= self._part_bytes

    def begin(self) -> None:
        """Begin the next part, which only its owner may read."""
        self.close()
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.part += 1
        self._path = self._directory / f"{self._session}-{self.part:05}{SUFFIX}"
        self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
        self._size = 0
        self._others = self._found()
        self._write(MAGIC)

    def _found(self) -> deque[tuple[Path, int]]:
        """Return the other parts, the oldest first, with their sizes; another router may delete some now."""
        written = re.compile(rf"({_SESSION}|{re.escape(self._session)})-\d{{5,}}{re.escape(SUFFIX)}")
        found: deque[tuple[Path, int]] = deque()
        for path in sorted(self._directory.iterdir()):
            if path == self._path or not written.fullmatch(path.name):
                continue
            try:
                stat = path.lstat()
            except FileNotFoundError:
                continue
            if S_ISREG(stat.st_mode):
                found.append((path, stat.st_size))
        return found

    def check(self) -> None:
        """Raise OSError when the part has been deleted: what is written to it then is lost."""
        if self._fd >= 0 and not os.fstat(self._fd).st_nlink:
            raise OSError(errno.ENOENT, f"{self._path} has been deleted")

    def write(self, block: bytes) -> None:
        """Write a block; of one that does not fit on the disk nothing stays."""
        self._make_room(len(block))
        self._write(block)

    def _write(self, data: bytes) -> None:
        left = memoryview(data)
        try:
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)

    def _make_room(self, wanted: int) -> None:
        """Delete the oldest of the other parts for so many bytes."""
        taken = self._size + wanted + sum(size for _, size in self._others)
        while taken > self._most and self._others:
            oldest, size = self._others.popleft()
            oldest.unlink(missing_ok=True)
            taken -= size

    def close(self) -> None:
        """Let the system write what it holds, and be done; idempotent."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
