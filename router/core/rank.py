"""One rank of one worker, as the core sees it: its view, its predictions, its load."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from router.core.ledger import Load

if TYPE_CHECKING:
    from router.core.view import View


@dataclass(slots=True, eq=False)
class Rank:
    """`worker` is the worker's URL as the operator gave it, `rank` its data-parallel rank.

    `contradictions`: answers in a row that reported fewer cached tokens than the view had claimed.
    """

    worker: str
    rank: int
    view: View
    load: Load = field(default_factory=Load)
    contradictions: int = 0
