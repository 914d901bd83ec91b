"""How a request is entered: the load it is, and what its rank will hold by it.

What a process keeps to itself is entered by the plain functions; one that tells others (`core.telling`) has
functions of its own in their place, so that neither asks which it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from router.core.decide import predict, withdraw
from router.core.ledger import Ledger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.core.blocks import PromptBlocks
    from router.core.facts import Candidate
    from router.core.ledger import Load
    from router.core.rank import Rank


class Entry(Protocol):
    """A ledger's ticket."""

    def first_token(self) -> None:
        """See `Ticket`."""

    def close(self) -> None:
        """See `Ticket`."""


class Open(Protocol):
    """How a request is entered in the ledger."""

    def __call__(self, load: Load, uncached_tokens: int, prompt_tokens: int = 0, /) -> Entry:
        """See `Ledger.open`."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """`open` is `Ledger.open`, the others those of `core.decide`, or they do the same and more."""

    open: Open
    predict: Callable[[Candidate, PromptBlocks, float], Iterable[int]]
    withdraw: Callable[[Rank, Iterable[int]], None]


def own_accounts() -> Accounts:
    """Return the accounts of a process that tells nobody."""
    return Accounts(Ledger().open, predict, withdraw)
