"""Every route as its own document describes it, tried by schemathesis: whatever comes, nothing is a 5xx."""

from __future__ import annotations

import asyncio
import sys

from tests.e2e.processes import both

KEY = "a-key-of-sixteen-characters"
CHECKS = ("--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing", "--max-examples", "20")


async def test_no_request_that_the_document_suggests_is_a_server_error() -> None:
    async with both(count=2, router_options=("--admin-key", KEY)) as (_, front, _):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", "run", f"{front.url}/openapi.json"),
            *("-H", f"authorization: Bearer {KEY}", "--seed", "1", "--no-color", *CHECKS),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        assert b"No issues found" in said or b"passed" in said
        assert not any(b"Traceback" in line for line in front.log)
