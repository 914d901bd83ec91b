"""Files that somebody names: of a bearable size, and never waited for without an end.

A name can be that of a pipe to which nobody writes, or of a device that never ends.
"""

from __future__ import annotations

import errno
import os
import select
from pathlib import Path
from stat import S_ISFIFO, S_ISREG

BOM = b"\xef\xbb\xbf"
_PATIENCE_SECONDS = 3.0
_PIECE_BYTES = 1 << 20


def read_named(path: str | Path, most: int) -> bytes:
    """Return what is in a file, or comes out of a pipe, of `most` bytes; a byte order mark is left out.

    Raises OSError, whose `strerror` says why not: also where it is larger, or nothing comes for 3 s.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.set_blocking(descriptor, True)
        pieces, size = [], 0
        while piece := _piece(descriptor):
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


def _piece(descriptor: int) -> bytes:
    is_pipe = S_ISFIFO(os.fstat(descriptor).st_mode)
    if is_pipe and not select.select([descriptor], [], [], _PATIENCE_SECONDS)[0]:
        raise OSError(errno.ETIMEDOUT, f"it is a pipe from which nothing comes for {_PATIENCE_SECONDS:g} s")
    return os.read(descriptor, _PIECE_BYTES)
