"""One request on its way: what is told of it to the router that has sent it, and to those that share load."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from router.core.ledger import Ticket

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.simulate.later import Later
    from workers.simulate.records import Record
    from workers.simulate.router import Sent, SimRouter


@dataclass(slots=True)
class Share:
    """How load is made known to other routers: after `seconds`, by way of `later`."""

    later: Later
    seconds: float
    others: list[SimRouter]


@dataclass(slots=True)
class Flight:
    """A request under way. `guests`: its entries in the ledgers of other routers, once they know of it."""

    record: Record
    router: SimRouter
    sent: Sent
    share: Share | None = None
    guests: list[tuple[SimRouter, Ticket]] = field(default_factory=list)

    def begin(self, now: float) -> None:
        """Tell the others that it has been sent."""
        if self.share is not None:
            self.share.later.add(now + self.share.seconds, partial(self._enter, now))

    def _enter(self, began: float) -> None:
        if self.share is not None:
            self.guests = [(other, other.welcome(self.sent, began)) for other in self.share.others]
            self._note()

    def first_token(self, now: float) -> None:
        """Its prefill is over."""
        self.sent.ticket.first_token()
        self._tell(now, Ticket.first_token)

    def end(self, cached: int, now: float) -> None:
        """Its answer is complete; the engine had so many tokens of its prompt."""
        self.sent.ticket.close()
        self.router.learn(self.sent, cached)
        self._tell(now, Ticket.close)

    def _tell(self, now: float, what: Callable[[Ticket], None]) -> None:
        if self.share is not None:
            self.share.later.add(now + self.share.seconds, partial(self._do, what))

    def _do(self, what: Callable[[Ticket], None]) -> None:
        for _, guest in self.guests:
            what(guest)
        self._note()

    def _note(self) -> None:
        for other, _ in self.guests:
            other.note_peers(self.record.worker)
