"""Large bodies: what a router adds to their time, and how late the chunks of others' streams come meanwhile.

A chat of 32k tokens, and one whose prompt has 1 MiB of text; every one is new. Each is asked several times
of a worker directly and through each router, in turn, first alone and then beside eight streams of one chunk
in 8 ms through the same router. `CPU`: the router's, per request alone. `added`: the median time to the whole
answer, less that of asking directly in the same round. `longest delay`: of any chunk, from the worker's write
to the client's read. Medians over the rounds. Bars: 15 ms added, 5 ms of delay.

On a machine that does other things too, these are times of waiting for a core: `chrt --rr 1 python ...`.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import TYPE_CHECKING

from tests.bench.beside import Streams
from tests.bench.client import Client
from tests.bench.routers import NEEDS, Bench, Server, missing, rounds, running

if TYPE_CHECKING:
    from collections.abc import Sequence

ASKED = 5
PAUSE_SECONDS = 0.02
STREAMS = 8
LONGEST_STREAM = 4000
TOKENS = 32_768
TEXT_BYTES = 1 << 20
SHORT_WORDS = 100


@dataclass(slots=True)
class Row:
    """What was measured of one server with one kind of body, in ms, round by round."""

    cpu: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    beside: list[float] = field(default_factory=list)
    delay: list[float] = field(default_factory=list)


def main() -> None:
    """Print a table for each kind of body."""
    if absent := missing():
        print(f"bodies: needs {', '.join(absent)}")
        return
    count = rounds()
    print(f"medians of {count} rounds of {ASKED} requests each{NEEDS}")
    with running() as bench:
        kinds = {f"chat of {TOKENS:,} tokens": long(bench), "chat of 1 MiB": large(bench)}
        rows: dict[tuple[str, str], Row] = defaultdict(Row)
        chance = Random(2)
        for number in range(count + 1):
            for kind, words in kinds.items():
                for server in (bench.direct, *bench.routers):
                    _measure(bench, server, words, Row() if number == 0 else rows[kind, server.name], chance)
        for kind in kinds:
            _print(kind, bench, rows)
        bench.confirm(least_overlap=0.0)


def long(bench: Bench) -> list[str]:
    """Return the words of a chat of 32k tokens."""
    return bench.chats.drawn(TOKENS - bench.chats.overhead, Random(1))


def large(bench: Bench) -> list[str]:
    """Return words with 1 MiB of text."""
    words = bench.chats.drawn(TEXT_BYTES // 3, Random(1))
    used = 0
    for count, word in enumerate(words):
        used += len(word) + 1
        if used >= TEXT_BYTES:
            return words[: count + 1]
    raise AssertionError("words of less than two letters")


def _measure(bench: Bench, server: Server, words: list[str], row: Row, chance: Random) -> None:
    bodies = _fresh(bench, words, chance)
    began = server.cpu_seconds()
    row.alone.append(_asked(server, bodies))
    row.cpu.append((server.cpu_seconds() - began) * 1e3 / ASKED)
    bodies = _fresh(bench, words, chance)
    short = [bench.chats.drawn(SHORT_WORDS, chance) for _ in range(STREAMS)]
    streams = Streams(server.url, [bench.chats.body(each, LONGEST_STREAM, stream=True) for each in short])
    row.beside.append(_asked(server, bodies))
    row.delay.append(max(streams.stop()))


def _fresh(bench: Bench, words: list[str], chance: Random) -> list[bytes]:
    """Return bodies of the same words, each beginning elsewhere among them."""
    starts = [chance.randrange(len(words)) for _ in range(ASKED)]
    return [bench.chats.body(words[start:] + words[:start]) for start in starts]


def _asked(server: Server, bodies: Sequence[bytes]) -> float:
    """Return the median time of an answer, in ms."""
    times = []
    with closing(Client(server.url)) as client:
        for body in bodies:
            times.append(client.ask(body).whole * 1e3)
            time.sleep(PAUSE_SECONDS)
    return median(times)


def _print(kind: str, bench: Bench, rows: dict[tuple[str, str], Row]) -> None:
    print(f"\n| {kind}, ms | CPU | added | added beside streams | longest delay of a chunk |")
    print("| --- |" + " ---: |" * 4)
    direct = rows[kind, bench.direct.name]
    print(f"| direct | | ({median(direct.alone):.1f}) | ({median(direct.beside):.1f}) | {_delay(direct)} |")
    for router in bench.routers:
        row = rows[kind, router.name]
        added = (_added(row.alone, direct.alone), _added(row.beside, direct.beside))
        print(f"| {router.name} | {median(row.cpu):.1f} | {added[0]:.1f} | {added[1]:.1f} | {_delay(row)} |")


def _added(times: list[float], direct: list[float]) -> float:
    return median(one - other for one, other in zip(times, direct, strict=True))


def _delay(row: Row) -> str:
    return f"{median(row.delay):.1f}"
