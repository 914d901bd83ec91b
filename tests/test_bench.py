"""What the benchmarks of whole routers rest on: a load and a worker that do what they say."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from random import Random
from typing import TYPE_CHECKING

import msgspec
import pytest

from tests.bench.chats import Chats
from tests.bench.client import Client
from tests.bench.peers import SCRIPT

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WORDS = 100
BODIES = 300


@pytest.fixture(scope="module")
def chats(tmp_path_factory: pytest.TempPathFactory) -> Chats:
    return Chats.made_in(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def worker() -> Iterator[str]:
    command = [sys.executable, "-m", "tests.bench.dummy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


def requests_of_wrk(text: Path, kind: str, seed: int) -> list[bytes]:
    """Return the first bodies that wrk sends on one connection."""
    wrk = shutil.which("wrk")
    assert wrk, "wrk is not installed (tests/debian-packages.txt)"
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        environment = {**os.environ, "BENCH_TEXT": str(text), "BENCH_KIND": kind, "BENCH_SEED": str(seed)}
        command = [wrk, "-t1", "-c1", "-d30s", "-s", str(SCRIPT), url]
        with subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL) as process:
            found: list[bytes] = []
            while len(found) < BODIES:  # its first connection asks for nothing
                with server.accept()[0] as connection:
                    found += received(connection)
            process.kill()
    return found


def received(connection: socket.socket) -> Iterator[bytes]:
    """Answer requests until there are enough, or the connection ends."""
    with connection.makefile("rb") as stream:
        for _ in range(BODIES):
            head = b"".join(iter(stream.readline, b"\r\n" if stream.peek(1) else b""))
            length = re.search(rb"Content-Length: (\d+)", head)
            if not length:
                return
            yield stream.read(int(length[1]))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


@pytest.mark.parametrize("kind", ["repeated", "distinct"])
def test_every_chat_of_the_load_says_its_number_of_tokens(chats: Chats, tmp_path: Path, kind: str) -> None:
    chats.write(tmp_path / "text", WORDS, stream=False)
    bodies = requests_of_wrk(tmp_path / "text", kind, 7)
    assert {chats.tokens(body) for body in bodies} == {chats.overhead + WORDS}
    assert {msgspec.json.decode(body)["seed"] for body in bodies} == {chats.overhead + WORDS}
    assert len(set(bodies)) == (256 if kind == "repeated" else len(bodies))


def test_another_run_of_distinct_chats_repeats_none(chats: Chats, tmp_path: Path) -> None:
    chats.write(tmp_path / "text", WORDS, stream=False)
    one, other = (set(requests_of_wrk(tmp_path / "text", "distinct", seed)) for seed in (1001, 1002))
    assert not one & other


def test_any_number_of_words_is_that_many_tokens(chats: Chats) -> None:
    for words in (1, 50, 3000):
        body = chats.body(chats.drawn(words, Random(words)))
        assert chats.tokens(body) == chats.overhead + words == msgspec.json.decode(body)["seed"]


def test_the_worker_reports_the_tokens_that_the_request_has(chats: Chats, worker: str) -> None:
    answer = Client(worker).ask(chats.body(chats.words[:WORDS]))
    usage = msgspec.json.decode(answer.text.partition(b"\r\n\r\n")[2])["usage"]
    assert usage == {"prompt_tokens": chats.overhead + WORDS, "completion_tokens": 64}


def test_a_stream_comes_in_as_many_chunks_as_asked_each_with_its_time(chats: Chats, worker: str) -> None:
    client = Client(worker)
    for chunks in (1, 12):
        before = time.monotonic_ns()
        text = client.ask(chats.body(chats.words[:WORDS], chunks, stream=True)).text
        sent = [int(each) for each in re.findall(rb'"id":"(\d{16})"', text)]
        assert len(sent) == text.count(b'"content":" token"') == chunks
        assert before < sent[0] <= sent[-1] < time.monotonic_ns()
        assert sent == sorted(set(sent))
        assert b'"usage":{"prompt_tokens":%d}' % (chats.overhead + WORDS) in text
        assert text.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_a_body_that_comes_in_pieces_is_answered_once_it_is_whole(chats: Chats, worker: str) -> None:
    answer = Client(worker).ask(chats.body(chats.drawn(100_000, Random(1))))
    assert b'"prompt_tokens":%d' % (chats.overhead + 100_000) in answer.text.replace(b" ", b"")
