from __future__ import annotations

import json
import re
import signal
import socket
import urllib.request
from contextlib import AsyncExitStack, ExitStack, closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx2
import pytest

from tests.waiting import until_awaited
from tests.workers.process import Process, answered, refused, started
from tests.workers.refusal import one_line
from workers.assembly import consecutive
from workers.cli import cli
from workers.faults import FAULTS, Faults
from workers.publisher import PublisherConfig
from workers.spec import WorkerSpec


def test_serve_says_where_it_is_and_stops_on_sigterm() -> None:
    with started("serve", "--dp", "2", "--topic", "kv", "--model", "m") as process:
        worker = process.workers[0]
        assert [rank["topic"] for rank in worker["ranks"]] == ["kv", "kv"]
        assert worker["ranks"][0]["kv"].startswith("tcp://127.0.0.1:")
        with urllib.request.urlopen(worker["url"] + "/server_info", timeout=20) as answer:
            assert json.load(answer)["served_model_name"] == "m"
        assert process.stop() == (0, "")


@pytest.mark.parametrize("first", [signal.SIGTERM, signal.SIGINT])
def test_signals_after_the_first_change_nothing(first: signal.Signals) -> None:
    with started("serve") as running:
        process = running.process
        process.send_signal(first)
        while process.poll() is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                process.send_signal(number)
        assert process.returncode == 0


def test_fleet_runs_many_in_one_process() -> None:
    with started("fleet", "--count", "3", "--engine", "vllm", "--no-replay") as process:
        assert len({worker["url"] for worker in process.workers}) == 3
        for worker in process.workers:
            assert worker["ranks"][0]["replay"] is None
            with urllib.request.urlopen(worker["url"] + "/health", timeout=20) as answer:
                assert answer.status == 200


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--engine", "trt"], "--engine"),
        (["serve", "--page-size", "0"], "--page-size"),
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
    code, error = refused(*arguments)
    assert code == 2
    assert said in error
    assert error.count("\n") == 1


def test_64_workers_fit_in_one_process() -> None:
    options = [
        "--page-size",
        "64",
        "--paused-loop",
        "legacy",
        "--tier",
        "host=4x",
        "--dp",
        "4",
        "--load-port",
        "0",
    ]
    with started("fleet", "--count", "64", "--engine", "sglang", *options) as process:
        assert len({worker["url"] for worker in process.workers}) == 64
        assert len({rank["kv"] for worker in process.workers for rank in worker["ranks"]}) == 256


def test_the_largest_cache_there_may_be_takes_memory_only_as_it_fills() -> None:
    with started(
        "serve", "--engine", "vllm", "--page-size", "1", "--capacity-tokens", "100000000"
    ) as process:
        status = Path(f"/proc/{process.process.pid}/status").read_text()
        resident = int(re.search(r"VmRSS:\s+(\d+) kB", status)[1])  # type: ignore[index] # every process has one
        assert resident < 500_000


VLLM = ["serve", "--engine", "vllm"]
DECODE = ["serve", "--loop", "decode"]
NUMBERS = ["--transfer-gbps", "--pair-seconds", "--host-gbps", "--storage-gbps"]
COUNTS = [
    "--page-size",
    "--capacity-tokens",
    "--dp",
    "--max-model-len",
    "--chunk-tokens",
    "--max-running",
    "--hwm",
]
SENSELESS: list[tuple[list[str], str, str]] = [  # a command line, the option it names, and what was expected
    *(
        (["serve", name, value], name, "")
        for name in NUMBERS
        for value in ("nan", "inf", "-1", "0", "x", "1e99")
    ),
    *((["serve", name, value], name, "range") for name in COUNTS for value in ("0", "-1", "9" * 20)),
    (["serve", "--capacity-tokens", "100000001"], "--capacity-tokens", "<=100000000"),
    (["serve", "--capacity-tokens", "20"], "--capacity-tokens", "at least two pages, 32"),
    (["serve", "--chunk-tokens", "8"], "--chunk-tokens", "at least a page, 16"),
    (["fleet", "--count", "9" * 9], "--count", "range"),
    (["serve", "--model", ""], "--model", "a name that can be read"),
    (["serve", "--model", " "], "--model", "a name that can be read"),
    (["serve", "--model", "a\nb"], "--model", "a name that can be read"),
    (["serve", "--lora", ""], "--lora", "a name that can be read"),
    (["serve", "--lora", "a", "--lora", "a"], "--lora", "differ"),
    (["serve", "--lora", "m", "--model", "m"], "--lora", "differ"),
    (["serve", "--host", ""], "--host", "address"),
    (["serve", "--kv-connect", "tcp://x"], "--kv-connect", "tcp://host:port"),
    (["serve", "--kv-connect", "tcp://:5557"], "--kv-connect", "tcp://host:port"),
    (["serve", "--kv-connect", "tcp://x:0"], "--kv-connect", "a port from 1 to 65535"),
    (["serve", "--kv-connect", "tcp://x:65536"], "--kv-connect", "a port from 1 to 65535"),
    (["serve", "--kv-connect", "tcp://x:65535", "--dp", "2"], "--kv-connect", "a port from 1 to 65534"),
    (["serve", "--kv-connect", "tcp://x:1", "--kv-port", "5"], "--kv-port", "connects"),
    (["fleet", "--count", "2", "--kv-connect", "tcp://x:1"], "--kv-connect", "--count must be 1"),
    ([*VLLM, "--paused-loop", "legacy"], "--paused-loop", "SGLang's only"),
    ([*VLLM, "--write-through", "2", "--tier", "host=2x"], "--write-through", "SGLang's only"),
    ([*VLLM, "--tier", "host=2x,storage=2x"], "--tier", "storage is SGLang's only"),
    ([*VLLM, "--bigram"], "--bigram", "SGLang's only"),
    ([*VLLM, "--load-port", "0"], "--load-port", "SGLang's only"),
    (["serve", "--hash-form", "bytes"], "--hash-form", "vLLM's only"),
    (["serve", "--loop", "pipeline", "--paused-loop", "legacy"], "--paused-loop", "not paused"),
    (["serve", "--decode-radix-cache"], "--decode-radix-cache", "a decode loop"),
    ([*DECODE, "--tier", "host=2x"], "--tier", "decode_radix_cache"),
    ([*DECODE, "--kv-port", "5557"], "--kv-port", "publishes only with --decode-radix-cache"),
    (["serve", "--no-events", "--topic", "kv"], "--topic", "publishes events"),
    (["serve", "--no-events", "--load-port", "0"], "--load-port", "publishes events"),
    (["serve", "--no-replay", "--replay-port", "5558"], "--replay-port", "--no-replay"),
    (["serve", "--no-replay", "--buffer-steps", "5"], "--buffer-steps", "--no-replay"),
    (["serve", "--host-gbps", "5"], "--host-gbps", "needs --tier"),
    (["serve", "--tier", "host=2x", "--storage-gbps", "5"], "--storage-gbps", "storage=<n>x"),
    (["serve", "--tier", "host=2x,host=3x"], "--tier", "twice"),
    (["serve", "--tier", "host=99999x"], "--tier", "at most 10000x"),
    (["serve", "--tier", f"host={'9' * 400}x"], "--tier", "at most 10000x"),
    (["serve", "--tier", "host=0x"], "--tier", "more than 0"),
    (["serve", "--bootstrap-port", "8998"], "--bootstrap-port", "a prefill loop"),
    (["serve", "--pair-seconds", "5"], "--pair-seconds", "one half of a pair"),
    (["serve", "--port", "5557", "--kv-port", "5557"], "--kv-port", "both take port 5557"),
    (
        ["serve", "--dp", "2", "--kv-port", "5557", "--replay-port", "5558"],
        "--replay-port",
        "both take port 5558",
    ),
    (["fleet", "--count", "9", "--port", "5550", "--kv-port", "5558"], "--kv-port", "both take port 5558"),
    (["serve", "--dp", "2", "--kv-port", "65535"], "--kv-port", "go past 65535"),
    (["fleet", "--count", "2", "--load-port", "65535"], "--load-port", "go past 65535"),
    (["serve", "--fault", "lose"], "--fault", "NAME=VALUE"),
    (["serve", "--fault", "lose=nan"], "--fault", "lose"),
    (["serve", "--fault", "slow=inf"], "--fault", "slow"),
    (["serve", "--fault", "lose=1", "--fault", "lose=0"], "--fault", "twice"),
    (["serve", "--fault", "burst=1000000", "--fault", "burst_bytes=1000000"], "--fault", "at most"),
    (["serve", "--no-events", "--fault", "lose=1"], "--fault lose", "publishes events"),
    (["serve", "--fault", "status=200"], "--fault", "status"),
    (["serve", "--seed", "x"], "--seed", "integer"),
]


@pytest.mark.parametrize(("arguments", "option", "wanted"), SENSELESS, ids=lambda value: str(value)[:60])
def test_options_that_say_nothing_or_exclude_each_other(
    arguments: list[str], option: str, wanted: str, monkeypatch: Any, capsys: Any
) -> None:
    said = one_line(arguments, monkeypatch, capsys)
    assert option in said
    assert wanted in said


@pytest.mark.parametrize("text", ["{}", "{", '{"model": {"type": "BPE", "vocab": {}, "merges": []}}'])
def test_a_tokenizer_that_no_worker_can_answer_with(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(text)
    code, error = refused("serve", "--tokenizer", str(tmp_path))
    assert code == 2
    assert error.count("\n") == 1
    assert error.startswith(f"kv-workers: --tokenizer {tmp_path}: ")


@pytest.mark.parametrize("command", ["serve", "fleet"])
def test_the_help_explains_every_fault_with_its_unit_and_default(command: str) -> None:
    assert list(FAULTS) == list(Faults.__struct_fields__)
    said = answered(command, "--help")
    for name, (value, does) in FAULTS.items():
        default = json.dumps(getattr(Faults(), name))
        assert re.search(
            rf"  {name}={re.escape(value)} +{re.escape(does)} {re.escape(f'[{default}]')}\n", said
        )
    flat = " ".join(said.split())
    for words in (
        "topic before the number",
        "arrays with a tag first",
        "30 ms + 250 us",
        "whole 32-byte digests",
    ):
        assert words in flat


def test_every_option_has_a_help_and_a_default_that_is_shown() -> None:
    for parameter in [*cli.commands["serve"].params, *cli.commands["fleet"].params]:
        assert isinstance(parameter, click.Option)
        told = parameter.help or ""
        assert told.endswith(".")
        shown = parameter.default not in (None, ()) or parameter.is_flag or parameter.required
        assert shown or "by default" in told, parameter.name


def _hang(process: Process, path: str, body: dict[str, Any], cut: int = 0) -> socket.socket:
    """Send a request, or all of it but its end, and never read an answer."""
    where = urlsplit(process.url)
    assert where.hostname is not None
    client = socket.create_connection((where.hostname, where.port or 0))
    text = json.dumps(body).encode()
    head = b"POST %s HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(text))
    client.sendall(head + text[: len(text) - cut])
    return client


LONG = {"prompt": [1, 2, 3], "max_tokens": 100_000}


async def test_sigterm_ends_hanging_clients_without_a_word() -> None:
    async with AsyncExitStack() as stack:
        process = stack.enter_context(started("serve", "--profile", "8b-h100"))
        direct = await stack.enter_async_context(httpx2.AsyncClient(base_url=process.url, timeout=30.0))

        def hang(path: str, body: dict[str, Any], cut: int = 0) -> None:
            stack.enter_context(closing(_hang(process, path, body, cut)))

        async def began(requests: int) -> bool:
            counts = (await direct.get("/_faults")).json()["counts"]["http"]
            return bool(counts.get("refuse_share", 0) == requests)

        async def flushes() -> bool:
            return "already" in (await direct.post("/flush_cache?timeout=0.001")).text

        hang("/v1/completions", LONG | {"stream": True})
        hang("/flush_cache?timeout=600", {})
        await until_awaited(flushes)
        for plan in ({"hang": 1.0}, {"endless": 1.0}, {"slow": 600.0}):
            await direct.post("/_faults", json=plan)
            hang("/v1/completions", {"prompt": [1], "max_tokens": 1})
            await until_awaited(lambda: began(1))
        await direct.post("/_faults", json={"hold_pause": 600.0})
        await direct.post("/pause_generation")
        hang("/v1/completions", LONG)
        hang("/v1/completions", LONG, cut=5)
        hang("/pause_generation", {"mode": "retract"}, cut=5)
        hang("/continue_generation", {})
        await until_awaited(lambda: began(2))


@pytest.mark.parametrize(
    ("options", "hanging"),
    [
        (["--engine", "vllm"], ("/pause?mode=wait", {})),
        (["--loop", "prefill"], ("/v1/completions", LONG | {"bootstrap_room": 1})),
        (["--fault", "half_open=600"], ("/v1/completions", LONG)),
        (["--fault", "restart=true"], ("/v1/completions", LONG)),
    ],
    ids=str,
)
async def test_sigterm_ends_whatever_is_under_way(
    options: list[str], hanging: tuple[str, dict[str, Any]]
) -> None:
    with started("serve", "--profile", "8b-h100", *options) as process, ExitStack() as stack:
        for request in (("/v1/completions", LONG), hanging, hanging):
            stack.enter_context(closing(_hang(process, *request)))


def test_a_taken_port_is_one_line_and_exit_code_1() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, error = refused("serve", "--port", port)
    assert code == 1
    assert port in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("option", ["--kv-port", "--replay-port", "--load-port", "--bootstrap-port"])
def test_any_other_port_that_is_taken_is_one_line_too(option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        code, error = refused("serve", "--loop", "prefill", option, port)
    assert code == 1
    assert port in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("options", [["--host", "no.such.host.invalid"], ["--kv-connect", "tcp://-%-:5"]])
def test_an_address_that_cannot_be_used_is_one_line(options: list[str]) -> None:
    code, error = refused("serve", *options)
    assert code == 1
    assert error.count("\n") == 1


def test_given_ports_are_those_of_the_first_worker() -> None:
    spec = WorkerSpec(port=9000, dp=2, events=PublisherConfig(port=5557, replay_port=None))
    specs = consecutive(spec, 3)
    assert [spec.port for spec in specs] == [9000, 9001, 9002]
    assert [spec.events and spec.events.port for spec in specs] == [5557, 5559, 5561]
