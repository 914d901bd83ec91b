"""One request of a model with prefill or decode workers, and what it has been through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from router.api.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.api.exchange import Exchange
    from router.api.planner import Plan
    from router.core.rank import Rank
    from router.pairs.choice import Choice
    from router.pairs.half import HalfFailed


@dataclass(slots=True)
class Errand:
    """`copies`: answers wanted to each prompt. `room` narrows ranks to those with room for one more.

    `refused`: a worker has said that it takes no more; from then on only those are asked that are `unspared`.
    `attempts` have been made, `sends` of them have been written. `lost` are workers that have failed;
    `shunned` those whose pair has, it is not known by whose fault.
    """

    plan: Plan
    exchange: Exchange
    copies: int
    room: Callable[[list[Rank]], list[Rank]]
    unspared: Callable[[list[Rank]], list[Rank]]
    refused: bool = False
    lost: set[str] = field(default_factory=set)
    shunned: set[str] = field(default_factory=set)
    attempts: int = 0
    sends: int = 0

    def among(self, ranks: list[Rank]) -> list[Rank]:
        """Return the ranks to try next."""
        left = [rank for rank in ranks if rank.worker not in self.lost]
        left = [rank for rank in left if rank.worker not in self.shunned] or left
        left = self.unspared(left) if self.refused else left
        return self.room(left) or left  # rather one too many than none

    def failed(self, failed: HalfFailed, choice: Choice) -> None:
        """Take note of an attempt that came to nothing."""
        self.attempts += 1
        self.sends += failed.failure.sent
        self.refused |= failed.refused or isinstance(failed.failure, Refused)
        if not failed.shared and (failed.answer is None or failed.refused or failed.own):
            self.lost.add(failed.half.rank.worker)
            return
        self.shunned |= _workers(choice)

    def shuns(self, choice: Choice) -> bool:
        """Whether nobody in it is new: it would take as long again."""
        return _workers(choice) <= self.shunned


def _workers(choice: Choice) -> set[str]:
    halves = (choice.first, choice.decode)
    return {half.rank.worker for half in halves if half is not None}
