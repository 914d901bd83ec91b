from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.workers.refusal import one_line
from workers.simulate.results import Result

if TYPE_CHECKING:
    from pathlib import Path

SPEED = "expected a number from 1 to 1000000000 tokens/s,"
SMALL = (
    "--workload",
    "groups,qps=5,seconds=4,groups=5,output=10",
    "--workers",
    "2",
    "--policies",
    "kv,round_robin",
)


def simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "workers", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_a_table_json_and_plots_come_of_one_command_and_the_seed_decides_them(tmp_path: Path) -> None:
    files = [tmp_path / "one.json", tmp_path / "two.json"]
    plots = tmp_path / "plots"
    small = (*SMALL, "--router", "events,approximate", "--json")
    first, second = simulate(*small, str(files[0]), "--plots", str(plots)), simulate(*small, str(files[1]))
    assert first.returncode == second.returncode == 0, first.stderr
    assert first.stdout == second.stdout
    assert [row.split("  ")[0].rstrip() for row in first.stdout.splitlines()[1:]] == [
        f"{policy}: {router}" for router in ("events", "approximate") for policy in ("kv", "round_robin")
    ]
    assert files[0].read_bytes() == files[1].read_bytes()
    results = msgspec.json.decode(files[0].read_bytes(), type=list[Result])
    assert [(result.policy, result.unended) for result in results] == [("kv", 0), ("round_robin", 0)] * 2
    page = (plots / "index.html").read_text()
    assert page.count("data:image/png;base64,") == len(list(plots.glob("*.png"))) == 3
    assert "http" not in page


def test_a_trace_is_read_from_its_path(tmp_path: Path) -> None:
    trace = tmp_path / "short.jsonl"
    line = '{"timestamp": %d, "input_length": 700, "output_length": 4, "hash_ids": [0, %d]}\n'
    trace.write_text("".join(line % (at * 100, at + 1) for at in range(20)))
    done = simulate("--trace", str(trace), "--speed", "2", "--policies", "kv", "--host-tier", "10x")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1].startswith("kv")


def test_the_preset_table_has_every_column_and_its_troubles() -> None:
    done = simulate("--table", "--requests", "4", "--policies", "kv")
    assert done.returncode == 0, done.stderr
    head, kv, gap, troubles, *rows = done.stdout.splitlines()
    assert ("b2b 20/s" in head, "siblings" in head, gap) == (True, True, "")
    assert kv.startswith("kv ")
    assert "b2b 20/s" in troubles
    assert any(row.startswith("kv: guesses, 4 routers ") for row in rows)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give either --trace FILE, or --workload NAME, or --table"),
        (("--workload", "chat", "--trace", "x"), "give either"),
        (("--workload", "chart"), "'chart' is none of groups"),
        (("--workload", "chat", "--policies", "kv,best"), "'best' is none of all, kv"),
        (("--workload", "chat", "--router", "psychic"), "expected events, approximate or events-lag=SECONDS"),
        (("--workload", "chat", "--host-tier", "big"), "--host-tier: expected host=<n>x"),
        (("--workload", "chat", "--no-spread"), "--spread has no effect without --trace"),
        (("--workload", "chat", "--share", "1"), "--share has no effect with one router"),
        (("--workload", "chat", "--kv-tokens", "1024"), "see --kv-tokens"),
        (("--workload", "chat", "--weights", "uncached"), "--weights: expected NAME=N of uncached, active"),
        (("--workload", "chat", "--weights", "host_speed=0"), f"--weights: host_speed: {SPEED} got '0'"),
        (("--workload", "chat", "--weights", "adapter_slots=1.5"), "adapter_slots: expected a whole number"),
        (("--workload", "chat", "--weights", "uncached=1001"), "uncached: expected a number from 0 to 1000"),
        (("--workload", "chat", "--weights", "bound=0.5"), "bound: expected a number from 1 to 1000"),
        (("--workload", "chat", "--weights", "saturated=nan"), "saturated: expected a number from 1 to 1000"),
        (("--workload", "chat", "--profile", "tpu"), "'tpu' is not one of"),
        (("--workload", "chat", "--qps", "nan"), "nan is not a number"),
        (("--table", "--qps", "3"), "--qps has no effect on --table"),
        (("--table", "--replicas", "3"), "--replicas has no effect on --table"),
        (("--trace", "/nowhere/x.jsonl"), "/nowhere/x.jsonl: No such file"),
        (("--trace", "/nowhere/x.jsonl", "--qps", "3"), "--qps has no effect on --trace"),
        (("--workload", "chat", "--json", "/nowhere/x.json"), "/nowhere/x.json: No such file"),
        (("--workload", "chat", "--plots", "/proc/plots"), "--plots: /proc/plots: "),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(
    arguments: tuple[str, ...],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = one_line(("simulate", *arguments), monkeypatch, capsys)
    assert said.startswith("kv-workers: ")
    assert words in said
