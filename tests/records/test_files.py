from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from router.records import entries
from router.records.files import Files
from router.records.format import block, packed
from router.records.reader import sessions
from router.records.scribe import Scribe
from router.records.writer import Writer
from tests.records.made import CODES, ranked, session
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

MOST = 16 * 2**20


def taken(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.iterdir())


def test_the_oldest_parts_make_room(tmp_path: Path) -> None:
    files = Files(tmp_path, "s", MOST)
    for _ in range(48):
        if files.full:
            files.begin()
        files.write(os.urandom(2**19))
        assert taken(tmp_path) <= MOST
    files.close()
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names[-1] == f"s-{files.part:05}.kvr"
    assert names[0] != "s-00000.kvr"
    assert taken(tmp_path) > MOST - 2 * MOST // 8


def test_what_no_router_has_written_is_neither_deleted_nor_in_the_way(tmp_path: Path) -> None:
    name = "20200101T000000Z-00000000-0000"
    (tmp_path / f"{name}0.kvr").symlink_to(tmp_path / "nowhere")
    (tmp_path / f"{name}1.kvr").mkdir()
    for other, size in ((f"{name}2.kvr", MOST), ("precious.kvr", 2 * MOST), (f"{name}3.kvr.bak", MOST)):
        with (tmp_path / other).open("wb") as file:
            file.truncate(size)
    files = Files(tmp_path, "s", MOST)
    files.begin()
    files.write(b"x")
    files.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [f"{name}0.kvr", f"{name}1.kvr", f"{name}3.kvr.bak", "precious.kvr", "s-00000.kvr"]
    )


async def test_a_part_that_is_deleted_meanwhile_ends_the_record(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(Scribe(session(), CODES), Files(tmp_path / "d", "s", MOST))
    writer.start()
    shutil.rmtree(tmp_path / "d")
    await until(lambda: writer.ended)
    writer.close()
    path = tmp_path / "d" / "s-00000.kvr"
    assert caplog.messages == [f"recording has stopped: {path} has been deleted"]


async def test_a_part_that_cannot_be_deleted_for_room_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = tmp_path / "20200101T000000Z-00000000-00000.kvr"
    with old.open("wb") as file:
        file.truncate(MOST - 1000)
    writer = Writer(Scribe(session(), CODES), Files(tmp_path, "s", MOST))
    writer.start()
    old.unlink()
    old.mkdir()
    for _ in range(100):
        writer.put(entries.Unlinked(1.0, 0, os.urandom(300).hex()))
    await until(lambda: writer.ended)
    writer.close()
    assert caplog.messages == [f"recording has stopped: {old}: Is a directory"]


def test_a_record_is_its_owners_alone(tmp_path: Path) -> None:
    directory = tmp_path / "new"
    files = Files(directory, "s", MOST)
    files.begin()
    files.close()
    assert directory.stat().st_mode & 0o777 == 0o700
    assert (directory / "s-00000.kvr").stat().st_mode & 0o777 == 0o600


def test_each_part_says_which_ranks_there_are(tmp_path: Path) -> None:
    """A part can be read when those before it have been deleted."""
    writer = Writer(Scribe(session(), CODES), Files(tmp_path, "s", MOST))
    writer.start()
    for entry in (ranked(0), entries.Opened(0, True), ranked(1), entries.Gone(1)):
        writer.put(entry)
    filler = "x" * 2000
    for _ in range(12_000):
        writer.put(entries.Unlinked(1.0, 0, filler + os.urandom(300).hex()))
    writer.close()
    parts = sorted(tmp_path.iterdir())
    assert len(parts) > 1
    parts[0].unlink()
    (stored,) = sessions(str(tmp_path))
    first, *rest = stored.entries()
    assert isinstance(first, entries.Session)
    assert first.part == 1
    assert rest[:2] == [ranked(0), entries.Opened(0, True)]
    assert writer.ended == ""


PROGRAM = """
import resource, sys, logging
from pathlib import Path
from router.records import entries
from router.records.files import Files
from router.records.scribe import Scribe
from router.records.writer import Writer
from tests.records.made import CODES, session
from tests.waiting import until
import asyncio, os
logging.basicConfig(format="%(message)s")
writer = Writer(Scribe(session(), CODES), Files(Path(sys.argv[1]), "s", 1 << 24))
writer.start()
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))
for number in range(3000):
    writer.put(entries.Unlinked(1.0, 0, os.urandom(30).hex()))
asyncio.run(until(lambda: writer.ended))
writer.put(entries.Gone(1))
writer.close()
print(writer.ended)
"""


def test_a_disk_that_takes_no_more_ends_the_record_with_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    why = os.strerror(errno.EFBIG)
    assert ended.stdout == f"{why}\n"
    assert ended.stderr == f"recording has stopped: {why}\n"
    (stored,) = sessions(str(tmp_path))
    assert len(list(stored.entries())) == 1  # what did not fit as a whole is not there at all
    assert not stored.notes


def test_a_directory_that_cannot_be_made_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    writer = Writer(Scribe(session(), CODES), Files(tmp_path / "file", "s", MOST))
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        writer.start()


async def test_what_the_disk_cannot_keep_up_with_ends_the_record(tmp_path: Path) -> None:
    writer = Writer(Scribe(session(), CODES), Files(tmp_path, "s", MOST))
    writer.start()
    writer.put(entries.Gone(1), held=2**40)
    await until(lambda: writer.ended == "the disk cannot keep up")
    writer.close()


def test_blocks_are_small_beside_what_they_say() -> None:
    many = [entries.Completed(float(number), number % 8) for number in range(2000)]
    assert len(block(packed(many))) < len(packed(many)) / 2
