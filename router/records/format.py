r"""The bytes of a record's files, "parts": a line that says what it is, then blocks of entries.

    kv-router record 1\n
    block: u32 BE length, u32 BE CRC-32, then so many bytes of zlib: a MessagePack array of entries

A part can be cut anywhere: what is before the cut can be read. Bytes that nobody of ours has written are
refused in one line.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING

import msgspec

from router.errors import ConfigError
from router.records.entries import Entry

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

VERSION = 1
SUFFIX = ".kvr"
_NAME = b"kv-router record "
MAGIC = _NAME + b"%d\n" % VERSION
_LONGEST_MAGIC = 32
_HEAD = Struct(">II")
# Entries of one block, uncompressed; the writer begins another one long before.
_MOST_BYTES = 64 * 2**20
_LEVEL = 1
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Entry]).decode


class RecordError(ConfigError):
    """What is there is no record, or one that cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A part ends within a block, after `at` bytes that could be read."""

    at: int


def packed(entries: Sequence[Entry]) -> bytes:
    """Return the entries as MessagePack."""
    return _encode(entries)


def block(entries: bytes) -> bytes:
    """Return packed entries as a block. Compression lets other threads run."""
    body = zlib.compress(entries, _LEVEL)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def read(data: memoryview, name: str) -> Iterator[list[Entry] | Cut]:
    """Yield the entries of each block of a part, and at last where it is cut, if it is.

    Raises RecordError, naming the part, for anything else than what a writer leaves behind.
    """
    at = _begin(bytes(data[:_LONGEST_MAGIC]), name)
    while at < len(data):
        entries, end = _block(data, at, name)
        if entries is None:
            yield Cut(at)
            return
        yield entries
        at = end


def _begin(head: bytes, name: str) -> int:
    if head.startswith(MAGIC):
        return len(MAGIC)
    if MAGIC.startswith(head):
        return len(head)  # cut before anything was written
    version = head.removeprefix(_NAME).partition(b"\n")[0]
    if head.startswith(_NAME) and version.isdigit():
        raise RecordError(f"{name}: format {version.decode()}, this kv-router reads format {VERSION}")
    raise RecordError(f"{name}: not a record of kv-router")


def _block(data: memoryview, at: int, name: str) -> tuple[list[Entry] | None, int]:
    """Return a block's entries and its end; None for one that was cut."""
    start = at + _HEAD.size
    if start > len(data):
        return None, at
    length, crc = _HEAD.unpack(data[at:start])
    end = start + length
    if end > len(data):
        return None, at
    body = data[start:end]
    if zlib.crc32(body) != crc:
        if end == len(data):
            return None, at
        raise RecordError(f"{name}: damaged at byte {at}")
    return _entries(body, at, name), end


def _entries(body: memoryview, at: int, name: str) -> list[Entry]:
    try:
        opened = zlib.decompressobj()
        raw = opened.decompress(body, _MOST_BYTES)
        if opened.eof and not opened.unused_data:
            return _decode(raw)
    except (
        zlib.error,
        msgspec.MsgspecError,
        ValueError,
        OverflowError,
        RecursionError,
        MemoryError,
    ) as error:
        raise RecordError(f"{name}: no entries at byte {at}: {error!s:.100}") from error
    raise RecordError(f"{name}: no entries at byte {at}")
