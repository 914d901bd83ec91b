"""How much one process of stand-ins sustains: short requests, stream chunks, and 64 workers at once.

The process runs beside its clients; `per CPU second` is what one core would do if it did nothing else.
The bars: 2,000 short requests and 20,000 chunks per second of one core, so that a stand-in never limits a
benchmark of the router.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import uvloop

CONNECTIONS = 32
SHORT_REQUESTS = 6_000
STREAMS = 128
CHUNKS_PER_STREAM = 400
MANY = 64
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(slots=True)
class Measured:
    """What was done in how many seconds of the wall's clock and of the process's CPU."""

    done: int
    wall: float
    cpu: float


def main() -> None:
    """Print the table."""
    print(f"{'one process':<40} {'per second':>12} {'per CPU second':>15} {'bar':>8}")
    uvloop.run(_table())


async def _table() -> None:
    for engine in ("sglang", "vllm"):
        short = await _measure(1, engine, SHORT_REQUESTS, stream=False)
        _row(f"{engine}: short requests", short, 2_000)
        chunks = await _measure(1, engine, STREAMS, stream=True)
        _row(f"{engine}: stream chunks", chunks, 20_000)
    many = await _measure(MANY, "sglang", SHORT_REQUESTS, stream=False)
    _row(f"{MANY} workers: short requests", many, 2_000)


def _row(name: str, measured: Measured, bar: int) -> None:
    wall, cpu = measured.done / measured.wall, measured.done / measured.cpu
    print(f"{name:<40} {wall:>12,.0f} {cpu:>15,.0f} {bar:>8,}")


async def _measure(workers: int, engine: str, requests: int, *, stream: bool) -> Measured:
    process, urls = await _fleet(workers, engine)
    try:
        await _load(urls, CONNECTIONS * 2, stream=stream)
        cpu, began = _cpu_seconds(process.pid), time.perf_counter()
        done = await _load(urls, requests, stream=stream)
        wall = time.perf_counter() - began
        return Measured(done, wall, _cpu_seconds(process.pid) - cpu)
    finally:
        process.terminate()
        await process.wait()


async def _fleet(workers: int, engine: str) -> tuple[asyncio.subprocess.Process, list[str]]:
    arguments = ["--count", str(workers), "--engine", engine, "--profile", "instant"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "workers", "fleet", *arguments, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    ready = json.loads(await process.stdout.readline())
    return process, [worker["url"] for worker in ready["workers"]]


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


async def _load(urls: list[str], requests: int, *, stream: bool) -> int:
    """Send requests over some connections, one after another on each; return answers, or chunks."""
    numbers = iter(range(requests))
    clients = (_client(urls[index % len(urls)], numbers, stream=stream) for index in range(CONNECTIONS))
    return sum(await asyncio.gather(*clients))


async def _client(url: str, numbers: Any, *, stream: bool) -> int:
    parts = urlsplit(url)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port, limit=1 << 22)
    done = 0
    for number in numbers:
        writer.write(_request(number, stream=stream))
        done += await (_chunks(reader) if stream else _answer(reader))
    writer.close()
    return done


def _request(number: int, *, stream: bool) -> bytes:
    prompt = [number % 50_000, *range(31)]
    body = json.dumps(
        {"prompt": prompt, "max_tokens": CHUNKS_PER_STREAM if stream else 1, "stream": stream}
    ).encode()
    return b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body


async def _answer(reader: asyncio.StreamReader) -> int:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
    await reader.readexactly(length)
    return 1


async def _chunks(reader: asyncio.StreamReader) -> int:
    whole = await reader.readuntil(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    return whole.count(b"data: ") - 1


if __name__ == "__main__":
    main()
