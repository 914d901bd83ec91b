"""A policy of one's own, for --policy tests.e2e.rules:last."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from router.core.facts import Facts
    from router.core.weights import Weights

UNLUCKY_TOKENS = 13


def last(facts: Facts, _weights: Weights) -> list[float]:
    """Take the rank whose name is the last, but fail for prompts of thirteen tokens."""
    if facts.prompt_tokens == UNLUCKY_TOKENS:
        raise RuntimeError("thirteen")
    names = sorted(rank.name for rank in facts.ranks)
    return [-names.index(rank.name) for rank in facts.ranks]
