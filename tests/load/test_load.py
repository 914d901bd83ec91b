from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.e2e.processes import both
from tests.waiting import until_awaited
from tests.workers.refusal import one_line
from workers.load.result import Live

if TYPE_CHECKING:
    from pathlib import Path

WORKLOAD = ("--workload", "groups,qps=20,seconds=3,groups=5,shared=600,own=100,output=12")


async def load(*arguments: str) -> tuple[int, str, str]:
    command = [sys.executable, "-m", "workers", "load", *arguments]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return process.returncode or 0, out.decode(), err.decode()


@pytest.mark.parametrize("form", ["ids", "letters"])
async def test_a_workload_is_put_on_a_router_and_its_answers_are_counted(form: str, tmp_path: Path) -> None:
    file = tmp_path / "live.json"
    async with both(count=2) as (_, front, _client):
        code, table, said = await load("--url", front.url, *WORKLOAD, "--prompts", form, "--json", str(file))
    assert code == 0, said
    live = msgspec.json.decode(file.read_bytes(), type=Live)
    result = live.result
    assert result.requests > 30
    assert (result.unended, live.errors) == (0, {})
    assert 0.5 < result.hit_share < 1
    assert 0 < result.ttft.mean < result.e2e.mean
    assert result.tpot.mean > 0
    assert len(live.workers) == 2
    assert sum(live.workers.values()) == result.requests
    assert live.late.highest < 30
    assert table.splitlines()[1].startswith(front.url)


async def test_what_fails_is_counted_and_nothing_answered_is_exit_code_1() -> None:
    async with both(count=1) as (_, front, _client):
        code, table, said = await load(
            "--url", front.url, *WORKLOAD, "--model", "nobody's", "--requests", "7"
        )
    assert (code, said.splitlines()[-1]) == (1, "kv-workers: not one request was answered")
    assert "7 requests failed: status 404" in table


async def test_a_url_where_nobody_listens_is_told() -> None:
    code, table, _ = await load("--url", "http://127.0.0.1:9", *WORKLOAD, "--requests", "3")
    assert code == 1
    assert "3 requests failed: no connection" in table


def _heed_interrupts() -> None:
    """Do as under a terminal: a shell has what it puts in the background ignore them, these tests for one."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


async def test_an_interrupt_shows_what_has_been_measured_so_far(tmp_path: Path) -> None:
    file = tmp_path / "live.json"
    workload = ("--workload", "groups,qps=20,seconds=3600,groups=5,shared=60,own=10,output=2")
    async with both(count=1) as (_, front, client):
        command = [
            sys.executable,
            "-m",
            "workers",
            "load",
            "--url",
            front.url,
            *workload,
            "--json",
            str(file),
        ]
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdout=pipe, stderr=pipe, start_new_session=True, preexec_fn=_heed_interrupts
        )

        async def answered() -> bool:
            row = (await client.get("/workers")).json()["workers"][0]
            return bool(row["answered"] > 5)

        await until_awaited(answered, "some requests were answered")
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does it
        out, err = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 130
    assert b"Traceback" not in err
    live = msgspec.json.decode(file.read_bytes(), type=Live)
    assert live.result.requests > 0
    assert live.result.unended == 0
    table = out.decode().splitlines()
    assert table[1].startswith(front.url)
    assert f"interrupted: {live.result.requests} of " in table[2]


async def test_a_worker_that_dies_cuts_its_answers() -> None:
    async with both("--profile", "8b-h100", count=1) as (workers, front, client):
        loading = asyncio.create_task(
            load("--url", front.url, "--workload", "groups,qps=20,seconds=5,output=900")
        )

        async def busy() -> object:
            rows = (await client.get("/workers")).json()["workers"]
            return rows[0]["inflight_requests"] > 0

        await until_awaited(busy, "a request under way")
        workers.kill()
        code, table, _ = await loading
    assert code == 1
    assert "requests failed" in table


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "--url"),
        (("--url", "ftp://x", *WORKLOAD), "--url: 'ftp://x' is not"),
        (("--url", "http://x"), "give either --trace FILE, or --workload NAME"),
        (("--url", "http://x", *WORKLOAD, "--prompts", "songs"), "'songs' is not one of"),
        (("--url", "http://x", *WORKLOAD, "--json", "/nowhere/x"), "--json: /nowhere/x: No such file"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = one_line(("load", *arguments), monkeypatch, capsys)
    assert words in said
