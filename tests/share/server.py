"""A real Redis server for a test: it can be killed, started again on its port, and told to stand still."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class RedisServer:
    """Listens on `port` of 127.0.0.1 while it runs."""

    def __init__(self, *options: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self._options = options
        self._process: asyncio.subprocess.Process | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it; return once it takes connections."""
        program = shutil.which("redis-server")
        assert program is not None, "redis-server is not installed: see tests/debian-packages.txt"
        self._process = await asyncio.create_subprocess_exec(
            program,
            *("--bind", "127.0.0.1", "--port", str(self.port), "--save", "", "--appendonly", "no"),
            *self._options,
            stdout=asyncio.subprocess.PIPE,
        )
        assert self._process.stdout is not None
        while b"Ready to accept connections" not in (line := await self._process.stdout.readline()):
            assert line, "redis-server has not started"

    async def kill(self) -> None:
        """End it as a machine that loses power would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.communicate()

    def stand_still(self, *, still: bool) -> None:
        """Stop answering, with all connections open; or go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP if still else signal.SIGCONT)


@asynccontextmanager
async def redis_server(*options: str) -> AsyncIterator[RedisServer]:
    server = RedisServer(*options)
    await server.start()
    try:
        yield server
    finally:
        with contextlib.suppress(ProcessLookupError):
            await server.kill()
