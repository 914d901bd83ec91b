"""One rank of one worker, as the core sees it: its view, its predictions, its load, its worker's breaker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from router.core.breaker import Breaker
from router.core.ledger import Load

if TYPE_CHECKING:
    from router.core.view import View


@dataclass(slots=True, eq=False)
class Rank:
    """`worker` is the worker's URL as the operator gave it, `rank` its data-parallel rank.

    `contradictions`: answers in a row that reported fewer cached tokens than the view had claimed. `breaker`
    is shared by the ranks of a worker. `owner` is whatever the fleet keeps the worker as; it stays reachable
    from a request that is under way when the worker has left.
    """

    worker: str
    rank: int
    view: View
    load: Load = field(default_factory=Load)
    contradictions: int = 0
    breaker: Breaker = field(default_factory=Breaker)
    owner: Any = None
