"""One request in a re-run: what it enters in the ledger and in the predictions, and takes out again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from router.core.decide import predict, withdraw

if TYPE_CHECKING:
    from array import array

    from router.core.blocks import PromptBlocks
    from router.core.facts import Candidate
    from router.core.ledger import Ledger, Ticket
    from router.core.rank import Rank


@dataclass(slots=True)
class Request:
    """`session` is the code of one; `keys` are those of `prompt`; `chosen` the choices since the last try.

    `predicted` is the last try's. It does what `api.dispatch` does for one worker, and `api.attempt` for a
    pair, which it is once it was joined.
    """

    id: str
    session: bytes | None
    prompt: PromptBlocks
    keys: dict[tuple[int, bool], array[int]]
    chosen: list[Candidate] = field(default_factory=list)
    predicted: list[tuple[Rank, array[int]]] = field(default_factory=list)
    _tickets: list[Ticket] = field(default_factory=list)
    _computed: bool = False
    _is_pair: bool = False

    def begin(self, candidate: Candidate, ledger: Ledger, now: float) -> None:
        """A try begins."""
        load, uncached = candidate.rank.load, candidate.uncached_tokens
        self._tickets = [ledger.open(load, uncached, self.prompt.count)]
        self.predicted = [(candidate.rank, self._predict(candidate, now))]
        self._computed = self._is_pair = False

    def join(self, decode: Candidate, ledger: Ledger, now: float, *, keeps: bool) -> None:
        """It is one of a pair; the decode rank `keeps` the prompt, too, or does not."""
        self._is_pair = True
        self._tickets.append(ledger.open(decode.rank.load, 0, self.prompt.count))
        if keeps:
            self.predicted.append((decode.rank, self._predict(decode, now)))

    def compute(self) -> None:
        """The prompt is no longer in flight; the prefill half of a pair is over."""
        self._computed = True
        if self._is_pair:
            self._tickets[0].close()
        else:
            self._tickets[0].first_token()

    def end(self, *, answered: bool) -> None:
        """The try is over: give back its load, and take back what will not come true."""
        for ticket in self._tickets:
            ticket.close()
        for number, (rank, keys) in enumerate(self.predicted):
            holds = self._computed if self._is_pair and number == 0 else answered
            if not holds:
                withdraw(rank, keys)

    def _predict(self, candidate: Candidate, now: float) -> array[int]:
        return predict(candidate, self.prompt, now)
