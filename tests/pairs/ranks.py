"""Ranks with views of their own, for tests that need no worker behind them."""

from __future__ import annotations

from router.core.index import Index
from router.core.rank import Rank
from router.core.view import View


def a_rank(worker: str = "http://10.0.0.1:30000", rank: int = 0, index: Index | None = None) -> Rank:
    return Rank(worker, rank, View(index or Index(), "m", block_size=16))
