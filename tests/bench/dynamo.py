"""Dynamo's index beside ours, where there is one to measure.

`KV_ROUTER_DYNAMO` names the Python of an environment with `ai-dynamo-runtime==1.6.1`, pyzmq and msgspec.
Without it the tables show this router alone. Dynamo's indexer is compiled from the socket on; its RadixTree
is what a program in Python has of it, which decodes and hashes events itself.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PYTHON = os.environ.get("KV_ROUTER_DYNAMO", "")
NEEDS = (
    ""
    if PYTHON
    else "beside it Dynamo: KV_ROUTER_DYNAMO=a Python with ai-dynamo-runtime==1.6.1 pyzmq msgspec"
)
_TICKS = os.sysconf("SC_CLK_TCK")
_IDLE_SECONDS = 0.4

_MATCH = """
import json, random, sys, time
from dynamo._core import RadixTree
rng = random.Random(7)
number = lambda: rng.getrandbits(64)
def stored(event, parent, blocks, tokens):
    pairs = [{"block_hash": b, "tokens_hash": t} for b, t in zip(blocks, tokens)]
    data = {"stored": {"parent_hash": parent, "blocks": pairs}}
    return json.dumps({"event_id": event, "data": data, "dp_rank": 0}).encode()
for line in sys.stdin:
    keeps, rounds = json.loads(line)
    depth = keeps[0]
    tree, tokens, blocks = RadixTree(), [number() for _ in range(depth)], [number() for _ in range(depth)]
    for rank, keep in enumerate(keeps):
        for at in range(0, keep, 512):
            end, parent = min(at + 512, keep), blocks[at - 1] if at else None
            tree.apply_event(rank, stored(rank * 10000 + at, parent, blocks[at:end], tokens[at:end]))
    times = []
    for _ in range(rounds + 3):
        began = time.perf_counter()
        tree.find_matches(tokens)
        times.append(time.perf_counter() - began)
    print(json.dumps(sorted(times[3:])[rounds // 2] * 1e6), flush=True)
"""

_INGEST = """
import sys, time
import msgspec, zmq
from dynamo._core import RadixTree, compute_block_hash_for_seq
endpoint, batches, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
socket = zmq.Context().socket(zmq.SUB)
socket.setsockopt(zmq.RCVHWM, 0)
socket.subscribe(b"")
socket.connect(endpoint)
tree, decode, encode = RadixTree(), msgspec.msgpack.Decoder().decode, msgspec.json.Encoder().encode
for number in range(batches):
    payload = socket.recv_multipart()[2]
    if number == 1:
        began = time.process_time()
    for event in decode(payload)[1]:
        tokens = compute_block_hash_for_seq(event["token_ids"], size)
        pairs = [{"block_hash": b, "tokens_hash": t} for b, t in zip(event["block_hashes"], tokens)]
        data = {"stored": {"parent_hash": event["parent_block_hash"], "blocks": pairs}}
        tree.apply_event(0, encode({"event_id": number, "data": data, "dp_rank": 0}))
tree.find_matches([1])
print((time.process_time() - began) * batches / (batches - 1))
"""


class Matcher:
    """A RadixTree in another process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-c", _MATCH], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def us(self, held_blocks: list[int], rounds: int) -> float:
        """Return the median time of find_matches, when each rank holds so many blocks of the prompt."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps((held_blocks, rounds)) + "\n")
        self._process.stdin.flush()
        return float(json.loads(self._process.stdout.readline()))

    def close(self) -> None:
        self._process.communicate()


def indexer_seconds(endpoint: str, publish: Callable[[], Any]) -> float:
    """Have `dynamo.indexer` read everything that `publish` sends; return the seconds of CPU it takes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [PYTHON, "-m", "dynamo.indexer", "--block-size", "16", "--port", str(port)]
    command += ["--threads", "1", "--workers", f"1={endpoint}"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as indexer:
        try:
            publish()
            before = _cpu(indexer.pid)
            return _cpu_until_idle(indexer.pid) - before / _TICKS
        finally:
            indexer.terminate()


def tree_seconds(endpoint: str, publish: Callable[[], Any], batches: int, block_size: int) -> float:
    """Have a program in Python read as many batches and tell a RadixTree; return its seconds of CPU."""
    command = [PYTHON, "-c", _INGEST, endpoint, str(batches), str(block_size)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        publish()
        return float(program.communicate()[0])


def _cpu_until_idle(pid: int) -> float:
    """Return the CPU seconds of a process, once it has used none for a while."""
    used, last = _cpu(pid), time.perf_counter()
    while time.perf_counter() - last < _IDLE_SECONDS:
        time.sleep(0.02)
        if _cpu(pid) > used + 1:
            used, last = _cpu(pid), time.perf_counter()
    return used / _TICKS


def _cpu(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])
