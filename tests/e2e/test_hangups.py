"""SIGHUP ends nothing that runs on, whenever it comes."""

from __future__ import annotations

import asyncio
import signal
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from router.records.replay import replay
from tests.e2e.processes import fleet, recording
from tests.waiting import until

if TYPE_CHECKING:
    from asyncio.subprocess import Process

WORKER = "http://127.0.0.1:1"
BIT = 1 << (signal.SIGHUP - 1)  # of it in a mask of signals


def holds(process: Process) -> bool:
    """Whether a process holds SIGHUP back, as the system has it."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:"))
    return bool(int(mask, 16) & BIT)


async def hung_up_on_while_it_starts(*arguments: str) -> Process:
    """Start a command and send SIGHUP from the moment it holds it back until it does no more."""
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "router", *arguments, stderr=PIPE)
    await until(lambda: holds(process), "SIGHUP is held back")
    assert process.stderr is not None
    while process.returncode is None and holds(process):
        process.send_signal(signal.SIGHUP)
        await asyncio.sleep(0.01)
    return process


async def told(process: Process, expected: str) -> list[str]:
    """Return the lines of a log up to one that has the expected words."""
    assert process.stderr is not None
    lines: list[str] = []
    while not any(expected in line for line in lines):
        line = await process.stderr.readline()
        assert line, lines
        lines.append(line.decode())
    return lines


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_a_router_that_starts_reads_its_settings_again_once_it_has(processes: str) -> None:
    arguments = ("serve", "--port", "0", "--worker", WORKER, "--processes", processes)
    process = await hung_up_on_while_it_starts(*arguments)
    try:
        await told(process, "listening on ")
        if processes == "1":
            await told(process, "read the settings again")
        process.send_signal(signal.SIGHUP)
        await told(process, "read the settings again")
    finally:
        process.terminate()
        _, rest = await process.communicate()
    assert (process.returncode, b"Traceback" in rest) == (0, False)


async def test_a_recorder_that_starts_goes_on(tmp_path: Path) -> None:
    process = await hung_up_on_while_it_starts("record", "--out", str(tmp_path), "--worker", WORKER)
    await told(process, "recording goes on")
    process.terminate()
    await process.communicate()
    assert process.returncode == 0


async def test_a_recorder_goes_on_and_its_record_is_whole(tmp_path: Path) -> None:
    async with (
        fleet("--engine", "sglang", count=1) as workers,
        recording([workers.workers[0]["url"]], tmp_path) as process,
    ):
        await until(lambda: any(b"ready" in line for line in process.log), "a ready worker")
        process.process.send_signal(signal.SIGHUP)
        await until(lambda: any(b"recording goes on" in line for line in process.log), "it was heard")
        process.process.terminate()
        assert await process.process.wait() == 0
    (found,) = replay(str(tmp_path), [])
    assert (found.differences, found.ended) == ([], True)
