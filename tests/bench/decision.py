"""What a routing decision costs: block keys, match and cost, by prompt length and number of ranks.

Each rank holds a prefix of the prompt, the longest of them all but its last block, among blocks of other
prompts. Medians; single-threaded.
"""

from __future__ import annotations

from random import Random
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.cost import POLICIES, Weights, choose
from router.core.decide import gather
from router.core.events import Batch, Stored
from router.core.index import Index
from router.core.rank import Rank
from router.core.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCK_SIZE = 16
LENGTHS = (512, 2_048, 8_192, 32_768, 131_072)
RANKS = (1, 8, 64, 512)
ROUNDS = 15


def main() -> None:
    """Print the table."""
    print(f"routing decision, us, block size {BLOCK_SIZE}, every rank holds part of the prompt")
    print(f"{'tokens':>8} {'ranks':>6} {'keys':>9} {'match':>9} {'+ facts':>9} {'choose':>9} {'all':>9}")
    rng = Random(1)
    for length in LENGTHS:
        tokens = pack_tokens(rng.randrange(100_000) for _ in range(length))
        for count in RANKS:
            print(row(tokens, length, count))


def row(tokens: bytes, length: int, count: int) -> str:
    """Measure one cell of the table."""
    index = Index()
    ranks = [rank(index, tokens, length * (n + 1) // count) for n in range(count)]
    policy, weights, rng = POLICIES["kv"], Weights(), Random(2)

    def fresh() -> PromptBlocks:
        return PromptBlocks(tokens, length, Namespace("m"))

    prompt = fresh()
    keys = prompt.keys(BLOCK_SIZE, bigram=False)
    facts = gather(index, ranks, prompt)
    times = (
        timed(lambda: fresh().keys(BLOCK_SIZE, bigram=False)),
        timed(lambda: index.match(keys[: prompt.usable(BLOCK_SIZE)])),
        timed(lambda: gather(index, ranks, prompt)),
        timed(lambda: choose(policy, facts, weights, rng)),
        timed(lambda: choose(policy, gather(index, ranks, fresh()), weights, rng)),
    )
    return f"{length:>8} {count:>6} " + " ".join(f"{time:>9.1f}" for time in times)


def rank(index: Index, tokens: bytes, held_tokens: int) -> Rank:
    """Return a rank that holds the prompt's first tokens."""
    view = View(index, "m", block_size=BLOCK_SIZE)
    blocks = held_tokens // BLOCK_SIZE
    event = Stored(
        list(range(blocks)),
        None,
        tokens[: blocks * BLOCK_SIZE * 4],
        BLOCK_SIZE,
        False,
        "GPU",
        None,
        None,
        None,
        0,
        None,
    )
    view.apply(Batch(1.0, [event], 0))
    return Rank(f"http://worker-{view.slot}", 0, view)


def timed(work: Callable[[], object]) -> float:
    """Return the median time of one call, in us."""
    times = []
    for _ in range(ROUNDS):
        began = perf_counter()
        work()
        times.append(perf_counter() - began)
    return median(times) * 1e6
