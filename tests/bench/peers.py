"""Routers side by side over HTTP: CPU per request, requests/s and latency, under the same load in one run.

All are up at once, two workers behind each. Bursts of load (wrk) alternate among them, so that what else the
machine does hits all alike; the tables have medians over the rounds, of ratios too: of a router's CPU per
request to the bare proxy's, and of kv's to that router's. CPU is that of a whole process tree.

Chats are of about 200 tokens, half of them a system prompt that all have: `repeated` are 256 chats in turn,
`distinct` never come again. A stream is of 64 chunks, 8 ms apart, and asks for usage at its end; since a
burst ends in the middle of streams, they are counted by their bytes. The first byte is that of a stream on a
connection of its own, `idle` with nothing else to do, `loaded` beside the burst. Every chat has the same true
number of tokens, which the workers report; in the end this router's own metrics must say that it was right
about all of them, and that it has found overlap. `KV_ROUTER_ROUNDS`: rounds, of 80 s each.

On a machine that does other things too, latencies are times of waiting for a core: `chrt --rr 1 python ...`,
which leaves them nothing for the time of a burst.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median
from typing import TYPE_CHECKING

import msgspec

from tests.bench.client import Client
from tests.bench.routers import KV, NEEDS, Bench, Server, missing, rounds, running

if TYPE_CHECKING:
    from collections.abc import Iterable

WORDS = 100
# The connections of the burst before are closed by then, and whoever else needs a core has had it.
PAUSE_SECONDS = 1.0
SCRIPT = Path(__file__).with_name("chats.lua")


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of load."""

    kind: str
    connections: int
    seconds: float = 1.0
    stream: bool = False

    @property
    def title(self) -> str:
        return f"{'streams, ' if self.stream else ''}{self.kind}, c={self.connections}"


CASES = (
    Case("repeated", 32),
    Case("repeated", 256),
    Case("distinct", 32),
    Case("distinct", 256),
    Case("repeated", 256, seconds=2, stream=True),
    Case("distinct", 256, seconds=2, stream=True),
)


class Result(msgspec.Struct):
    """What wrk says."""

    requests: int
    seconds: float
    bytes: int
    errors: int
    p50_us: int
    p99_us: int


@dataclass(slots=True)
class Row:
    """What was measured of one router under one load, burst by burst; first bytes in ms."""

    cpu_us: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    p50_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)
    idle_ms: list[float] = field(default_factory=list)
    busy_ms: list[float] = field(default_factory=list)


def main() -> None:
    """Print the tables, one for each load."""
    if absent := missing("wrk"):
        print(f"peers: needs {', '.join(absent)}")
        return
    with running() as bench:
        for stream in (False, True):
            bench.chats.write(_text(bench, stream=stream), WORDS, stream=stream)
        count, tokens = rounds(), bench.chats.overhead + WORDS
        print(f"chats of {tokens} tokens; medians of {count} rounds{NEEDS}")
        rows: dict[tuple[Case, str], Row] = defaultdict(Row)
        for number in range(count + 1):
            for case in CASES:
                _round(bench, case, number, rows)
        for case in CASES:
            _print(case, bench, rows)
        bench.confirm(least_overlap=0.25)  # half of each prompt is shared


def _round(bench: Bench, case: Case, number: int, rows: dict[tuple[Case, str], Row]) -> None:
    """Give each router one burst; the first round warms them."""
    servers = [*bench.routers, *([bench.direct] if case.stream else [])]
    for server in servers:
        row = Row() if number == 0 else rows[case, server.name]
        time.sleep(PAUSE_SECONDS)
        _burst(bench, server, case, number, row)


def _burst(bench: Bench, server: Server, case: Case, seed: int, row: Row) -> None:
    beside: _Beside | None = None
    if case.stream:
        chance = Random(f"{server.name} {seed}")
        row.idle_ms.append(median(_first_bytes(bench, server, 20, chance)))
        beside = _Beside(bench, server, chance)
    began = server.cpu_seconds()
    result = _wrk(bench, server, case, seed)
    used = server.cpu_seconds() - began
    if beside is not None:
        row.busy_ms.append(median(beside.stop()))
    assert not result.errors, f"{server.name}: {result.errors} errors"
    done = result.bytes / _bytes_of_one(bench, server) if case.stream else result.requests
    row.cpu_us.append(used * 1e6 / done)
    row.rate.append(done / result.seconds)
    row.p50_ms.append(result.p50_us / 1e3)
    row.p99_ms.append(result.p99_us / 1e3)


def _wrk(bench: Bench, server: Server, case: Case, seed: int) -> Result:
    command = ["wrk", "-t1", f"-c{case.connections}", f"-d{case.seconds:g}s", "--timeout", "20s"]
    command += ["-s", str(SCRIPT), server.url]
    environment = {
        **os.environ,
        "BENCH_TEXT": str(_text(bench, stream=case.stream)),
        "BENCH_KIND": case.kind,
        "BENCH_SEED": str(seed * 1000 + CASES.index(case)),
    }
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = re.search(r"^RESULT (.*)$", done.stdout, re.MULTILINE)
    assert found, done.stdout
    return msgspec.json.decode(found[1], type=Result)


class _Beside:
    """Asks for streams of one chunk, one after another, while something else is measured."""

    def __init__(self, bench: Bench, server: Server, chance: Random) -> None:
        self._over = threading.Event()
        self._times: list[float] = []
        self._thread = threading.Thread(target=self._run, args=(bench, server, chance))
        self._thread.start()

    def stop(self) -> list[float]:
        """Return the times to the first byte, in ms."""
        self._over.set()
        self._thread.join()
        return self._times

    def _run(self, bench: Bench, server: Server, chance: Random) -> None:
        while not self._over.is_set():
            self._times += _first_bytes(bench, server, 5, chance)


def _first_bytes(bench: Bench, server: Server, count: int, chance: Random) -> list[float]:
    """Return the times to the first byte of streams on one connection, in ms."""
    bodies = [bench.chats.body(bench.chats.drawn(WORDS, chance), 1, stream=True) for _ in range(count)]
    with closing(Client(server.url)) as client:
        return [client.ask(body).first * 1e3 for body in bodies]


def _bytes_of_one(bench: Bench, server: Server) -> int:
    with closing(Client(server.url)) as client:
        return len(client.ask(bench.chats.body(bench.chats.words[:WORDS], stream=True)).text)


def _text(bench: Bench, *, stream: bool) -> Path:
    return bench.scratch / ("streams" if stream else "short")


def _print(case: Case, bench: Bench, rows: dict[tuple[Case, str], Row]) -> None:
    columns = ["CPU us", "to bare", "kv to it", "per s", "p50 ms", "p99 ms"]
    columns += ["first byte ms: idle", "loaded"] if case.stream else []
    print(f"\n| {case.title} | " + " | ".join(columns) + " |")
    print("| --- |" + " ---: |" * len(columns))
    for name in [router.name for router in bench.routers] + ([bench.direct.name] if case.stream else []):
        row = rows[case, name]
        cells = [""] * 3
        if name != bench.direct.name:
            to_first, to_kv = (_ratio(row, rows[case, other]) for other in (bench.routers[0].name, KV))
            cells = [f"{median(row.cpu_us):.0f}", f"{to_first:.2f}", f"{1 / to_kv:.2f}"]
        cells.append(f"{median(row.rate):,.0f}")
        cells += _milliseconds(row.p50_ms, row.p99_ms, *([row.idle_ms, row.busy_ms] if case.stream else []))
        print(f"| {name} | " + " | ".join(cells) + " |")


def _ratio(row: Row, other: Row) -> float:
    """Return the median over the rounds of one router's CPU per request to another's."""
    return median(one / beside for one, beside in zip(row.cpu_us, other.cpu_us, strict=True))


def _milliseconds(*measured: Iterable[float]) -> list[str]:
    return [f"{median(each):.2f}" for each in measured]
