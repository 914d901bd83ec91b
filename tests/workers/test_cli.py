from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import urllib.request
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from workers.options import consecutive
from workers.publisher import PublisherConfig
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import Iterator

COMMAND = [sys.executable, "-m", "workers"]


@contextmanager
def _process(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """Run a command until it is ready; yield the process and its ready line."""
    process = subprocess.Popen([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())
    finally:
        process.kill()
        process.communicate()


def _fails(*arguments: str) -> tuple[int, str]:
    done = subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == ""
    return done.returncode, done.stderr


def test_serve_says_where_it_is_and_stops_on_sigterm() -> None:
    with _process("serve", "--dp", "2", "--topic", "kv", "--model", "m") as (process, ready):
        worker = ready["workers"][0]
        assert [rank["topic"] for rank in worker["ranks"]] == ["kv", "kv"]
        assert worker["ranks"][0]["kv"].startswith("tcp://127.0.0.1:")
        with urllib.request.urlopen(worker["url"] + "/server_info", timeout=20) as answer:
            assert json.load(answer)["served_model_name"] == "m"
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 0


def test_fleet_runs_many_in_one_process() -> None:
    with _process("fleet", "--count", "3", "--engine", "vllm", "--no-replay") as (_, ready):
        assert len({worker["url"] for worker in ready["workers"]}) == 3
        for worker in ready["workers"]:
            assert worker["ranks"][0]["replay"] is None
            with urllib.request.urlopen(worker["url"] + "/health", timeout=20) as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--engine", "trt"], "--engine"),
        (["serve", "--page-size", "0"], "page_size"),
        (["serve", "--port", "99999"], "--port"),
        (["serve", "--kv-connect", "nowhere"], "tcp://host:port"),
        (["serve", "--tokenizer", "."], "tokenizer.json"),
        (["serve", "--tier", "disk=4x"], "host=<n>x"),
        (["serve", "--fault", "loose=1"], "loose"),
        (["serve", "--engine", "vllm", "--loop", "decode"], "loop"),
        (["fleet"], "--count"),
        (["fleet", "--count", "9", "--port", "65530"], "65535"),
        (["serve", "--what"], "--what"),
    ],
)
def test_a_wrong_value_is_one_line_and_exit_code_2(arguments: list[str], said: str) -> None:
    code, error = _fails(*arguments)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_a_taken_port_is_one_line_and_exit_code_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, error = _fails("serve", "--port", port)
    assert code == 1
    assert port in error
    assert error.count("\n") == 1


def test_given_ports_are_those_of_the_first_worker() -> None:
    spec = WorkerSpec(port=9000, dp=2, events=PublisherConfig(port=5557, replay_port=None))
    specs = consecutive(spec, 3)
    assert [spec.port for spec in specs] == [9000, 9001, 9002]
    assert [spec.events and spec.events.port for spec in specs] == [5557, 5559, 5561]
