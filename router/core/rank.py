"""One rank of one worker, as the core sees it: its view, its predictions, its load, its worker's breaker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from router.core.breaker import Breaker
from router.core.ledger import Load

if TYPE_CHECKING:
    from router.core.view import View
    from router.core.word import Word

_MOST_ADAPTERS = 64


@dataclass(slots=True, eq=False)
class Rank:
    """`worker` is the worker's URL as the operator gave it, `rank` its data-parallel rank.

    `contradictions`: answers in a row that reported fewer cached tokens than the view had claimed. `breaker`
    is shared by the ranks of a worker. `owner` is whatever the fleet keeps the worker as; it stays reachable
    from a request that is under way when the worker has left. `adapters`: LoRA adapters of the requests
    that went there, whoever sent them, the latest first. `said` is the engine's last word on its load, None
    when there is none of late. `name` is the same in every router and at every start. `answered` requests,
    the tokens of their prompts, and those of them that were cached: as the engine said, as expected where it
    did not.
    """

    worker: str
    rank: int
    view: View
    load: Load = field(default_factory=Load)
    contradictions: int = 0
    breaker: Breaker = field(default_factory=Breaker)
    owner: Any = None
    adapters: list[str] = field(default_factory=list)
    said: Word | None = None
    answered: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    name: bytes = field(init=False)

    def __post_init__(self) -> None:
        """Name the rank, and hear of adapters from its events."""
        self.name = b"%s %d" % (self.worker.encode(), self.rank)
        self.view.on_adapter = self.note_adapter

    def note_adapter(self, adapter: str) -> None:
        """A request for an adapter goes there, or went, so that it is loaded; others may make room for it."""
        adapters = self.adapters
        if adapters[:1] != [adapter]:
            if adapter in adapters:
                adapters.remove(adapter)
            adapters.insert(0, adapter)
            del adapters[_MOST_ADAPTERS:]
