"""Memory of views and index: bytes per distinct block as they fill, the growth of the process's own memory.

Bars: 100 bytes per distinct block of 16 tokens that 8 SGLang ranks share, at any fill; 200 bytes per token
at page size 1. vLLM's ranks each have their own hashes for the same blocks.
"""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from random import Random

from router.core.events import Batch, Stored
from router.core.index import Index
from router.core.view import View

RANKS = 8
CHAINS, CHAIN_BLOCKS = 8, 128
# Name, block size, blocks per event, ranks, whether each rank has its own hashes.
CASES = (
    ("SGLang, 8 ranks, 4 blocks an event", 16, 4, RANKS, False),
    ("SGLang, 8 ranks, 1 block an event", 16, 1, RANKS, False),
    ("SGLang, page size 1, 1 rank", 1, 64, 1, False),
    ("vLLM, 8 ranks", 16, 4, RANKS, True),
)
FILLS = tuple(int(100_000 * 1.19**step) for step in range(9))


def main() -> None:
    """Print the table; each case runs in a process of its own."""
    print("bytes of process memory per distinct block, by distinct blocks held")
    print(f"{'':36}" + "".join(f"{fill // 1000:>6}k" for fill in FILLS))
    for number, case in enumerate(CASES):
        command = [sys.executable, "-m", "tests.bench.memory", str(number)]
        measured = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        print(f"{case[0]:36}" + "".join(f"{float(each):>7.0f}" for each in measured))


def measure(number: int) -> list[float]:
    """Fill an index; return bytes per distinct block at each of FILLS."""
    _, size, step, ranks, own = CASES[number]
    rng = Random(1)
    fill(Index(), size, step, ranks, own, rng)
    index = Index()
    gc.collect()
    began, found = resident(), []
    views = [View(index, "m", block_size=size, counts_copies=own) for _ in range(ranks)]
    for target in FILLS:
        while index.blocks < target:
            add_chains(views, size, step, own, rng)
        gc.collect()
        found.append((resident() - began) / index.blocks)
    return found


def fill(index: Index, size: int, step: int, ranks: int, own: bool, rng: Random) -> None:
    """Run everything once, so that what Python loads and keeps is not counted."""
    views = [View(index, "m", block_size=size, counts_copies=own) for _ in range(ranks)]
    add_chains(views, size, step, own, rng)


def add_chains(views: list[View], size: int, step: int, own: bool, rng: Random) -> None:
    """Store some new prompts on every rank, event by event in turn."""
    width = 4 * size
    chains = [
        ([rng.getrandbits(62) for _ in range(CHAIN_BLOCKS)], rng.randbytes(CHAIN_BLOCKS * width))
        for _ in range(CHAINS)
    ]
    for at in range(0, CHAIN_BLOCKS, step):
        for hashes, tokens in chains:
            for rank, view in enumerate(views):
                other = rank + 1 if own else 0
                mine = [block ^ other for block in hashes[at : at + step]]
                parent = hashes[at - 1] ^ other if at else None
                part = tokens[at * width : (at + step) * width]
                event = Stored(list(mine), parent, part, size, False, "GPU", None, None, None, 0, None)
                view.apply(Batch(1.0, [event], 0))


def resident() -> int:
    """Return the process's resident memory, in bytes."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


if __name__ == "__main__":
    print(*measure(int(sys.argv[1])))
