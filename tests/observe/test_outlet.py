"""The log's way out of the process while nobody reads it, over real pipes."""

from __future__ import annotations

import logging
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from router.observe.logs import LineFormatter
from router.observe.outlet import MOST_BYTES, Outlet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import BinaryIO


@contextmanager
def outlet(*, blocking: bool = True) -> Iterator[tuple[logging.Logger, Outlet, BinaryIO]]:
    """Give a logger whose lines go into a pipe, and the pipe's other end."""
    reading, writing = os.pipe()
    os.set_blocking(writing, blocking)
    handler = Outlet(writing)
    handler.setFormatter(LineFormatter())
    log = logging.getLogger("router.test")
    log.addHandler(handler)
    with os.fdopen(reading, "rb") as end:
        yield log, handler, end
    handler.flush()  # to nobody any more
    log.removeHandler(handler)
    handler.close()
    os.close(writing)


def test_a_line_is_written_by_the_time_of_a_flush() -> None:
    with outlet() as (log, handler, end):
        log.warning("worker %s: \ud800", "http://a")
        handler.flush()
        assert os.read(end.fileno(), 1000).endswith(b"WARNING worker http://a: \\ud800\n")


def test_nobody_waits_for_who_does_not_read_and_what_is_lost_is_told_once() -> None:
    for blocking in (True, False):
        with outlet(blocking=blocking) as (log, _, end):
            for number in range(4 * MOST_BYTES // 1000):
                log.warning("%d %s", number, "x" * 1000)
            lines = []
            while b"lost" not in (line := end.readline()):
                lines.append(line)
            assert all(line.endswith(b"x\n") for line in lines)
            assert f" {4 * MOST_BYTES // 1000 - len(lines)} lines of the log are lost".encode() in line
            log.warning("it goes on")
            assert end.readline().endswith(b"it goes on\n")


def test_a_flush_has_an_end() -> None:
    with outlet() as (log, handler, end):
        for _ in range(200):
            log.warning("x" * 1000)
        handler.flush()
        assert end.readline()


def test_an_end_that_is_closed_ends_nothing() -> None:
    with outlet() as (log, handler, end):
        end.close()
        log.warning("to nobody")
        handler.flush()
