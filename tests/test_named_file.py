from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from router.named_file import read_named

if TYPE_CHECKING:
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
    assert why(tmp_path / "pipe") == "it is a pipe from which nothing comes for 3 s"
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
