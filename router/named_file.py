"""Files that somebody names: of a bearable size, and never waited for without an end.

A name can be that of a pipe to which nobody writes, or of a device that never ends.
"""

from __future__ import annotations

import errno
import os
import select
import time
from pathlib import Path
from stat import S_ISREG

BOM = b"\xef\xbb\xbf"
_PATIENCE_SECONDS = 3.0
_LONGEST_SECONDS = 30.0  # for all of it, however little comes at a time
_PIECE_BYTES = 1 << 20


def read_named(path: str | Path, most: int) -> bytes:
    """Return what is in a file, or comes out of a pipe, of `most` bytes; a byte order mark is left out.

    Raises OSError, whose `strerror` says why not: also where it is larger, or nothing comes for 3 s, or no
    end for 30 s.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        os.set_blocking(descriptor, True)
        pieces, size, end = [], 0, time.monotonic() + _LONGEST_SECONDS
        while piece := _piece(descriptor, end):
            pieces.append(piece)
            size += len(piece)
            if size > most:
                raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    finally:
        os.close(descriptor)
    return b"".join(pieces).removeprefix(BOM)


def is_regular(path: str | Path) -> bool:
    """Whether it is a file that can be opened twice, unlike a pipe, and ends. Raises OSError."""
    return S_ISREG(Path(path).stat().st_mode)


def _piece(descriptor: int, end: float) -> bytes:
    """Return what is there next, b"" at the end; whatever is no regular file can have nothing for ever."""
    if not S_ISREG(os.fstat(descriptor).st_mode):
        if time.monotonic() > end:
            raise OSError(errno.ETIMEDOUT, f"it has no end within {_LONGEST_SECONDS:g} s")
        if not _comes(descriptor):
            raise OSError(errno.ETIMEDOUT, f"nothing comes from it for {_PATIENCE_SECONDS:g} s")
    return os.read(descriptor, _PIECE_BYTES)


def _comes(descriptor: int) -> bool:
    """Wait for something to read, or the end. Of a busy router the descriptor is beyond select's 1024."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(_PATIENCE_SECONDS * 1000))
