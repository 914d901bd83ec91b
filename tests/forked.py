"""Processes of ours without the second or two of imports: forked by one that has them done.

What runs is what `python -m` would run, with arguments, environment, pipes, signals and exit code of its own.
That it starts from nothing, too, is what the tests of the command line, the image and the documents show.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import runpy
import sys
from multiprocessing import get_context
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerProcess

_FORKS = get_context("forkserver")
_FORKS.set_forkserver_preload(["router.service", "router.share.processes", "workers.cli", "workers.fleet"])


class Forked:
    """A running process, as `asyncio.subprocess.Process` is one."""

    def __init__(
        self, process: ForkServerProcess, stdout: asyncio.StreamReader, stderr: asyncio.StreamReader
    ) -> None:
        self._process = process
        self._ended = asyncio.get_running_loop().create_future()
        self.stdout, self.stderr = stdout, stderr
        assert process.pid is not None
        self.pid = process.pid
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    @property
    def returncode(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.kill()

    async def wait(self) -> int:
        """Wait for the end; return the exit code."""
        await asyncio.shield(self._ended)
        code = self.returncode
        assert code is not None
        return code

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._process.join()
        self._ended.set_result(None)


async def forked(module: str, *arguments: str, says: bool = True) -> Forked:
    """Start `python -m module`; where it `says` nothing of interest, its standard error is the tests'."""
    (out, out_end), (err, err_end) = _FORKS.Pipe(duplex=False), _FORKS.Pipe(duplex=False)
    given = (module, arguments, dict(os.environ), out_end, err_end if says else None)
    process = _FORKS.Process(target=_become, args=given)
    process.start()
    out_end.close()
    err_end.close()
    return Forked(process, await _reader(out), await _reader(err))


async def _reader(pipe: Connection) -> asyncio.StreamReader:
    """Read a pipe's bytes as they are, which are no messages."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    file = os.fdopen(os.dup(pipe.fileno()), "rb", 0)
    pipe.close()
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, file)
    return reader


def _become(
    module: str, arguments: Sequence[str], environ: dict[str, str], out: Connection, err: Connection | None
) -> None:
    os.environ.clear()
    os.environ.update(environ)
    for pipe, descriptor in ((out, 1), (err, 2)):
        if pipe is not None:
            os.dup2(pipe.fileno(), descriptor)
            pipe.close()
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    finally:
        atexit._run_exitfuncs()
