"""A prompt against 64 ranks, among 250,000 other blocks: us, medians.

`shared`: every rank holds the first half, one holds all, as with a system prompt. `staggered`: each rank
holds some blocks less than the one before, down to half. `one by one`: that, but every block came in an event
of its own, interleaved with 16 other prompts. Dynamo's RadixTree.find_matches does the same, without the
other blocks, in turn in the same run.
"""

from __future__ import annotations

from random import Random
from statistics import median
from time import perf_counter

from router.core.blocks import Namespace, PromptBlocks
from router.core.events import Batch, Hash, Stored
from router.core.index import Index
from router.core.view import View
from tests.bench import dynamo

BLOCK_SIZE = 16
RANKS = 64
OTHERS = 16
FILL = 250_000
DEPTHS = (8, 32, 128, 512, 2_048, 8_192)
_WIDTH = 4 * BLOCK_SIZE


def main() -> None:
    """Print the table."""
    print(f"match, us, {RANKS} ranks, {FILL:,} other blocks; {dynamo.NEEDS}")
    print(f"{'blocks':>8} {'shared':>8} {'Dynamo':>8} {'staggered':>10} {'Dynamo':>8} {'one by one':>11}")
    rng = Random(3)
    index, views = filled(rng)
    peer = dynamo.Matcher() if dynamo.PYTHON else None
    for depth in DEPTHS:
        rounds = 300 if depth < 1000 else 60
        shared = [depth] + [depth // 2] * (RANKS - 1)
        staggered = [depth - rank * depth // (2 * RANKS) for rank in range(RANKS)]
        cells = []
        for keeps in (shared, staggered):
            cells.append(f"{matched(index, views, keeps, 512, rounds, rng):>8.1f}")
            cells.append(f"{peer.us(keeps, rounds):>8.1f}" if peer is not None else f"{'':>8}")
        cells.append(f"{matched(index, views, staggered, 1, rounds, rng):>10.1f}")
        print(f"{depth:>8} " + "  ".join(cells))
    if peer is not None:
        peer.close()


def filled(rng: Random) -> tuple[Index, list[View]]:
    """Return an index with many blocks that the prompts have nothing to do with."""
    index = Index()
    views = [View(index, "m", block_size=BLOCK_SIZE) for _ in range(RANKS)]
    for number in range(FILL // 128):
        store(views[number % RANKS], [rng.getrandbits(63) for _ in range(128)], rng.randbytes(128 * _WIDTH))
    return index, views


def matched(index: Index, views: list[View], keeps: list[int], step: int, rounds: int, rng: Random) -> float:
    """Return the median time of matching a prompt stored in events of `step` blocks, in us."""
    depth = keeps[0]
    prompts = [
        ([rng.getrandbits(63) for _ in range(depth)], rng.randbytes(depth * _WIDTH))
        for _ in range(1 if step > 1 else OTHERS)
    ]
    for at in range(0, depth, step):
        for hashes, tokens in prompts:
            everywhere = tokens is prompts[0][1]
            for view, keep in zip(views if everywhere else views[:1], keeps, strict=False):
                end = min(at + step, keep)
                if at < end:
                    parent = hashes[at - 1] if at else None
                    store(view, hashes[at:end], tokens[at * _WIDTH : end * _WIDTH], parent)
    prompt = PromptBlocks(prompts[0][1], depth * BLOCK_SIZE, Namespace("m"))
    keys = prompt.keys(BLOCK_SIZE, bigram=False)
    assert index.match(keys).held[views[0].slot] == depth
    times = []
    for _ in range(rounds):
        began = perf_counter()
        index.match(keys)
        times.append(perf_counter() - began)
    return median(times) * 1e6


def store(view: View, hashes: list[Hash] | list[int], tokens: bytes, parent: int | None = None) -> None:
    """Apply one store."""
    event = Stored(list(hashes), parent, tokens, BLOCK_SIZE, False, "GPU", None, None, None, 0, None)
    view.apply(Batch(1.0, [event], 0))
