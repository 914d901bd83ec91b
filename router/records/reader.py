"""A directory of records, session by session."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from router.named_file import read_named
from router.records.entries import Session
from router.records.format import SUFFIX, Cut, RecordError, read

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.records.entries import Entry

# Parts are begun anew long before.
_MOST_BYTES = 2**29


@dataclass(slots=True)
class Stored:
    """One session's parts in their order. `notes` is filled while they are read: what is missing of them."""

    name: str
    parts: list[Path]
    notes: list[str] = field(default_factory=list)

    def entries(self) -> Iterator[Entry]:
        """Yield all entries. Raises RecordError, one line, for what is no record of this version."""
        expected: int | None = None
        for path in self.parts:
            for entry in self._part(path):
                if isinstance(entry, Session):
                    if entry.part != (entry.part if expected is None else expected):
                        raise RecordError(f"{path}: it is part {entry.part}, part {expected} is missing")
                    expected = entry.part + 1
                elif expected is None:
                    raise RecordError(f"{path}: it does not begin with its session")
                yield entry

    def _part(self, path: Path) -> Iterator[Entry]:
        data = _content(path)
        for block in read(memoryview(data), str(path)):
            if isinstance(block, Cut):
                self.notes.append(f"{path.name} is cut at byte {block.at} of {len(data)}")
            else:
                yield from block


def _content(path: Path) -> bytes:
    try:
        return read_named(path, _MOST_BYTES)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror or error}") from error


def sessions(directory: str) -> list[Stored]:
    """Return the sessions in a directory and below, the oldest first. Raises RecordError for none."""
    place = Path(directory)
    if not place.is_dir():
        raise RecordError(f"{directory}: there is no such directory")
    found: dict[str, Stored] = {}
    for path in sorted(place.rglob(f"*{SUFFIX}"), key=lambda path: path.name):
        name = path.stem.rpartition("-")[0]
        found.setdefault(name, Stored(name, [])).parts.append(path)
    if not found:
        raise RecordError(f"{directory}: there is no record ({SUFFIX} files)")
    return list(found.values())
