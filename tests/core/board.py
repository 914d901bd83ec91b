"""Ranks over one index, for tests of decisions: what they hold of a prompt, and how loaded they are."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from router.core.blocks import Namespace, PromptBlocks, pack_tokens
from router.core.cost import POLICIES, Policy, Weights, choose
from router.core.decide import gather
from router.core.index import Index
from router.core.ledger import Load
from router.core.rank import Rank
from router.core.view import View
from tests.core.frames import batch, stored

if TYPE_CHECKING:
    from router.core.facts import Facts

BLOCK = 16
_NAMES = {"tokens": "inflight_tokens", "requests": "active_requests"}


class Board:
    """`length` is that of the prompt, in tokens; ranks are added one by one, the columns in that order."""

    def __init__(self, length: int = 1600, *, lora: str | None = None) -> None:
        self.index = Index()
        self.tokens = list(range(1, length + 1))
        self.prompt = PromptBlocks(pack_tokens(self.tokens), length, Namespace("m", lora))
        self.ranks: list[Rank] = []

    def add(
        self, name: str, *, held: int = 0, tier: str = "GPU", block_size: int = BLOCK, **load: Any
    ) -> Rank:
        """Add a rank that holds the first `held` tokens of the prompt in a tier."""
        said = {_NAMES.get(field, field): number for field, number in load.items()}
        rank = Rank(name, 0, View(self.index, "m", block_size=block_size), Load(**said))
        if held:
            self.hold(rank, held, tier)
        self.ranks = [*self.ranks, rank]
        return rank

    def hold(self, rank: Rank, held: int, tier: str = "GPU") -> None:
        size = rank.view.block_size or BLOCK
        blocks = held // size
        lora = self.prompt.namespace.lora
        event = stored(
            list(range(1, blocks + 1)), self.tokens[: blocks * size], tier=tier, block_size=size, lora=lora
        )
        rank.view.apply(batch(event))

    def new_prompt(self) -> PromptBlocks:
        """Return the prompt of another request for the same."""
        return PromptBlocks(self.prompt.tokens, self.prompt.count, self.prompt.namespace)

    def facts(self, session: bytes | None = None) -> Facts:
        return gather(self.index, self.ranks, self.prompt, session)

    def costs(
        self, policy: str, weights: Weights | None = None, session: bytes | None = None
    ) -> dict[str, float]:
        amounts = POLICIES[policy].costs(self.facts(session), weights or Weights())
        return {rank.worker: amount for rank, amount in zip(self.ranks, amounts, strict=True)}

    def chosen(
        self,
        policy: str | Policy,
        *,
        seed: int = 0,
        weights: Weights | None = None,
        session: bytes | None = None,
    ) -> str:
        rule = POLICIES[policy] if isinstance(policy, str) else policy
        return choose(rule, self.facts(session), weights or Weights(), Random(seed)).rank.worker
