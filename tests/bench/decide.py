"""What a decision costs under each policy: facts (the match included) and choice, without the block keys.

500 ranks and a prompt of 8k tokens: once every rank holds a part of it that is its own, which is the worst
that a match can meet, and once a few do. 8 ranks and a prompt of 200 tokens: the common case. Other blocks
are predicted, as they always are where requests are under way.
"""

from __future__ import annotations

from random import Random
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.cost import POLICIES, Weights, choose
from router.core.decide import gather
from router.core.index import Index
from tests.bench.decision import BLOCK_SIZE, rank

if TYPE_CHECKING:
    from collections.abc import Sequence

    from router.core.cost import Policy
    from router.core.rank import Rank

ROUNDS = 60
MANY, LONG = 500, 8192
FEW, SHORT = 8, 200


class Board:
    """Ranks that hold so many tokens of a prompt each, and are loaded at random."""

    def __init__(self, length: int, held: Sequence[int]) -> None:
        rng = Random(1)
        self.rng = Random(2)
        self.index = Index()
        self.prompt = PromptBlocks(
            pack_tokens(rng.randrange(100_000) for _ in range(length)), length, Namespace("m")
        )
        self.prompt.keys(BLOCK_SIZE, bigram=False)
        self.ranks: list[Rank] = [rank(self.index, self.prompt.tokens, tokens) for tokens in held]
        for each in self.ranks:
            each.load.inflight_tokens, each.load.active_requests = rng.randrange(20_000), rng.randrange(40)
            each.load.show()
        self.ranks[0].view.predicted.add(range(1, 500), 0.0)

    def decide(self, policy: Policy, weights: Weights) -> tuple[float, float]:
        """Return the median of a decision, and of its choice alone, in us."""
        whole, part = [], []
        for _ in range(ROUNDS):
            began = perf_counter()
            facts = gather(self.index, self.ranks, self.prompt, b"session")
            gathered = perf_counter()
            choose(policy, facts, weights, self.rng)
            ended = perf_counter()
            whole.append(ended - began)
            part.append(ended - gathered)
        return median(whole) * 1e6, median(part) * 1e6


def main() -> None:
    """Print the table."""
    boards = {
        f"{MANY} ranks, all hold parts": Board(LONG, [LONG * (n + 1) // MANY for n in range(MANY)]),
        f"{MANY} ranks, 3 hold some": Board(LONG, [LONG // 2, LONG // 3, LONG // 5] + [0] * (MANY - 3)),
        f"{FEW} ranks, 200 tokens": Board(SHORT, [SHORT] + [0] * (FEW - 1)),
    }
    print("a decision, us (of it the choice), block size 16")
    print(f"{'policy':>16} " + " ".join(f"{name:>30}" for name in boards))
    for name, policy in POLICIES.items():
        times = [board.decide(policy, Weights()) for board in boards.values()]
        print(f"{name:>16} " + " ".join(f"{whole:>20.1f} ({part:>7.1f})" for whole, part in times))
