"""Every command that takes a file: what is none, or has no end, is one line."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SERVE = ["router", "serve", "--port=0", "--worker=http://127.0.0.1:1"]
COMMANDS = {
    "config check": ["router", "config", "check", "FILE"],
    "--config": [*SERVE, "--config=FILE"],
    "--worker-file": [*SERVE, "--worker-file=FILE"],
    "--api-keys": [*SERVE, "--api-keys=FILE"],
    "--tls-cert": [*SERVE, "--tls-cert=FILE"],
    "--worker-ca": [*SERVE, "--worker-ca=FILE"],
    "--tokenizer": [*SERVE, "--tokenizer=FILE"],
    "explain": ["router", "explain", "FILE"],
    "replay": ["router", "replay", "FILE"],
    "simulate --trace": ["workers", "simulate", "--trace=FILE"],
}


async def run(command: str, file: str | Path) -> list[str]:
    """Return the lines on stderr without click's usage, of a command that fails."""
    arguments = [each.replace("FILE", str(file)) for each in COMMANDS[command]]
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", *arguments, stdout=PIPE, stderr=PIPE)
    out, err = await process.communicate()
    assert (process.returncode in {1, 2}, out) == (True, b"")
    lines = [line for line in err.decode().splitlines() if not line.startswith(("Usage: ", "Try "))]
    return [line for line in lines if line]


async def test_a_pipe_to_which_nobody_writes_is_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    said = await asyncio.gather(*(run(command, tmp_path / "pipe") for command in COMMANDS))
    for command, (line,) in zip(COMMANDS, said, strict=True):
        assert str(tmp_path / "pipe") in line or command in line


async def test_what_has_no_end_is_one_line() -> None:
    commands = ["config check", "--worker-file", "--api-keys"]
    for (line,) in await asyncio.gather(*(run(command, "/dev/zero") for command in commands)):
        assert " it is larger than " in line


async def test_the_systems_authorities_in_a_pipe_are_one_line(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    command = ["router", "workers", "--url=https://127.0.0.1:1"]
    environ = {**os.environ, "SSL_CERT_FILE": str(tmp_path / "pipe")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", *command, stdout=PIPE, stderr=PIPE, env=environ
    )
    out, err = await process.communicate()
    assert (process.returncode, out) == (2, b"")
    assert err.decode() == f"kv-router: SSL_CERT_FILE {tmp_path / 'pipe'}: expected a regular file\n"
