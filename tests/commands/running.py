"""The commands as a user runs them: a process of its own, its output and its exit code."""

from __future__ import annotations

import asyncio
import os
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ended:
    """What a command has said, and its exit code."""

    code: int
    out: str
    err: str


def environment(**variables: str) -> dict[str, str]:
    """Return this process's environment without settings of the router."""
    clean = {name: text for name, text in os.environ.items() if not name.startswith("KV_ROUTER_")}
    return clean | variables


async def command(*arguments: str, stdin: bytes = b"", **variables: str) -> Ended:
    """Run `kv-router` to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "router", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=environment(**variables),
    )
    out, err = await process.communicate(stdin)
    return Ended(process.returncode or 0, out.decode(), err.decode())
