from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import httpx2

from tests.commands.running import command, environment
from tests.e2e.asking import rows
from tests.e2e.processes import both
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = {"model": "stand-in", "prompt": list(range(1, 100)), "max_tokens": 1}


class Terminal:
    """A terminal with `top` in it; `text` is what has been written to it."""

    def __init__(self, end: int, process: asyncio.subprocess.Process) -> None:
        self.end = end
        self.process = process
        self.text = ""
        asyncio.get_running_loop().add_reader(end, self._read)

    def _read(self) -> None:
        try:
            self.text += os.read(self.end, 65536).decode(errors="replace")
        except OSError:  # the other end is closed
            asyncio.get_running_loop().remove_reader(self.end)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process.send_signal(signal.SIGWINCH)

    @property
    def picture(self) -> list[str]:
        """Return the lines of the last whole picture."""
        return self.text.rpartition("\x1b[J")[0].rpartition("\x1b[H")[2].split("\r\n")


@asynccontextmanager
async def top(
    *arguments: str, rows: int = 24, columns: int = 100, **variables: str
) -> AsyncIterator[Terminal]:
    end, other = pty.openpty()
    fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", "top", *arguments),
        stdin=other,
        stdout=other,
        stderr=asyncio.subprocess.PIPE,
        env=environment(TERM="xterm", **variables),
    )
    terminal = Terminal(end, process)
    try:
        yield terminal
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        asyncio.get_running_loop().remove_reader(end)
        os.close(end)
        os.close(other)


async def test_on_a_terminal_it_is_drawn_over_and_fits_and_gives_the_screen_back() -> None:
    async with (
        both(count=2) as (workers, front, client),
        top("--url", front.url, NO_COLOR="1", LINES="24", COLUMNS="100") as terminal,
        top("--url", front.url) as coloured,
    ):
        await until(lambda: "\x1b[J" in terminal.text and "\x1b[J" in coloured.text, "pictures")
        await client.post("/v1/completions", json=PROMPT)
        await until(lambda: any("0 of 99 tokens held" in line for line in terminal.picture), "the decision")
        assert "\x1b[32mready" in coloured.text
        assert "\x1b[32m" not in terminal.text
        terminal.resize(6, 40)
        await until(lambda: len(terminal.picture) == 6, "as many lines as there are now")
        assert max(len(line.replace("\x1b[K", "")) for line in terminal.picture) <= 40
        terminal.resize(30, 120)
        await until(lambda: len(terminal.picture) > 6, "more lines again")
        workers.kill()
        await until(lambda: "0 of 2 workers ready" in terminal.text, "the workers are gone")
        os.write(terminal.end, b"q")
        assert await asyncio.wait_for(terminal.process.wait(), 30) == 0
        await until(lambda: terminal.text.endswith("\x1b[?25h\x1b[?1049l"), "the screen is given back")


async def test_a_router_that_goes_away_is_waited_for() -> None:
    async with both(count=1) as (_, front, _), top("--url", front.url) as terminal:
        await until(lambda: "live" in terminal.text, "a picture")
        front.kill()
        await until(lambda: "takes no connection" in terminal.text, "it says that the router is gone")
        terminal.process.send_signal(signal.SIGINT)
        assert await asyncio.wait_for(terminal.process.wait(), 30) == 0
        assert terminal.process.stderr is not None
        assert await terminal.process.stderr.read() == b""


async def test_without_a_router_at_first_it_ends_with_one_line() -> None:
    async with top("--url", "http://127.0.0.1:1") as terminal:
        assert await asyncio.wait_for(terminal.process.wait(), 30) == 1
        assert terminal.process.stderr is not None
        said = (await terminal.process.stderr.read()).decode()
        assert said == "kv-router: http://127.0.0.1:1 takes no connection: is a router up there?\n"


async def test_a_pipe_gets_plain_text_one_picture_or_all_until_the_router_ends() -> None:
    async with both(count=2) as (workers, front, client):
        await client.post("/v1/completions", json=PROMPT)
        async with httpx2.AsyncClient() as direct:
            await direct.post(f"{workers.workers[0]['url']}/flush_cache")

        async def emptied() -> bool:
            return any(sum(one["ranks"][0]["resets"].values()) for one in (await rows(client)).values())

        await until_awaited(emptied, "a reset")
        ended = await command("top", "--once", "--url", front.url)
        assert (ended.code, ended.err) == (0, "")
        assert "\x1b" not in ended.out
        assert "2 of 2 workers ready" in ended.out
        for worker in workers.workers:
            assert worker["url"].removeprefix("http://") in ended.out
        assert "RESETS" in ended.out
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "router", "top", "--url", front.url),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=environment(),
        )
        assert process.stdout is not None
        heads = 0
        while heads < 2:
            heads += (await process.stdout.readline()).startswith(b"kv-router ")
        front.process.terminate()
        out, err = await process.communicate()
        assert b"\x1b" not in out
        assert (process.returncode, err) == (1, f"kv-router: {front.url} has ended the stream\n".encode())
