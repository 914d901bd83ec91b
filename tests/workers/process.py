"""One `python -m workers` as a user starts it, with all that it says on standard error."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "workers"]
_LIMIT_SECONDS = 60


@dataclass(slots=True)
class Process:
    """A running command; `workers` is what its ready line says of each."""

    process: subprocess.Popen[str]
    workers: list[dict[str, Any]]
    errors: IO[str]

    @property
    def url(self) -> str:
        url: str = self.workers[0]["url"]
        return url

    def stop(self) -> tuple[int, str]:
        """End it as an operator does; return its exit code and standard error."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=_LIMIT_SECONDS)
        self.errors.seek(0)
        return code, self.errors.read()


@contextmanager
def started(*arguments: str) -> Iterator[Process]:
    """Run a command until it is ready; it must end without a word on standard error, and with 0."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            running = Process(process, json.loads(process.stdout.readline())["workers"], errors)
            yield running
            assert running.stop() == (0, "")
        finally:
            process.kill()
            process.communicate()


def refused(*arguments: str) -> tuple[int, str]:
    """Run a command that does not start; return its exit code and standard error."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=_LIMIT_SECONDS
    )
    assert done.stdout == ""
    return done.returncode, done.stderr


def answered(*arguments: str) -> str:
    """Run a command to its end, which must be good; return what it has said."""
    done = subprocess.run(
        [*COMMAND, *arguments], capture_output=True, text=True, check=True, timeout=_LIMIT_SECONDS
    )
    assert done.stderr == ""
    return done.stdout
