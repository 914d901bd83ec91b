from __future__ import annotations

import os
import resource
import threading
from typing import TYPE_CHECKING

import pytest

from router import named_file
from router.named_file import read_named

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def why(path: str | Path) -> str:
    with pytest.raises(OSError) as caught:
        read_named(path, 1000)
    return str(caught.value.strerror)


def test_what_has_no_end_or_never_begins_is_said_to_be_that(tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(1001))
    (tmp_path / "full").write_bytes(bytes(1000))
    os.mkfifo(tmp_path / "pipe")
    assert why("/dev/zero") == why(tmp_path / "large") == "it is larger than 1000 bytes"
    assert why(tmp_path / "pipe") == "nothing comes from it for 3 s"
    assert why(tmp_path) == "Is a directory"
    assert why(tmp_path / "none") == "No such file or directory"
    assert read_named(tmp_path / "full", 1000) == bytes(1000)
    assert read_named("/dev/null", 1000) == b""


def test_a_pipe_that_somebody_fills_is_a_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    filler = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=[b"\xef\xbb\xbfport: 1"])
    filler.start()
    assert read_named(tmp_path / "pipe", 1000) == b"port: 1"
    filler.join()


def test_a_terminal_at_which_nobody_types_is_not_waited_for() -> None:
    ours, theirs = os.openpty()
    try:
        assert why(os.ttyname(theirs)) == "nothing comes from it for 3 s"
    finally:
        os.close(theirs)
        os.close(ours)


def test_a_pipe_that_only_drips_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_file, "_LONGEST_SECONDS", 0.0)
    os.mkfifo(tmp_path / "pipe")
    drips = os.open(tmp_path / "pipe", os.O_RDWR)
    try:
        os.write(drips, b"a drop")
        assert why(tmp_path / "pipe") == "it has no end within 0 s"
    finally:
        os.close(drips)


@pytest.fixture
def a_thousand_open() -> Iterator[None]:
    """Hold so many descriptors that the next one is none for select."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(limits[0], min(2048, limits[1])), limits[1]))
    held = [os.open(os.devnull, os.O_RDONLY)]
    while held[-1] < 1024:
        held.append(os.open(os.devnull, os.O_RDONLY))
    yield
    for each in held:
        os.close(each)
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("a_thousand_open")
def test_a_pipe_is_read_whatever_else_is_open(tmp_path: Path) -> None:
    test_a_pipe_that_somebody_fills_is_a_file(tmp_path)
