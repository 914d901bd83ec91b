"""What this process tells and hears: messages are made when something has changed, and all is told in rounds.

A change is told some milliseconds after the first one of a bunch. Twice a second everything is told, so that
what was lost is healed and everybody is known to be there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, Protocol

from router.core.peers import Name, Peers
from router.core.said import decode
from router.core.telling import Telling
from router.share.names import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from router.core.rank import Rank
    from router.core.said import Spent

FLUSH_SECONDS = 0.005
ROUND_SECONDS = 0.5
SPENT_SECONDS = 0.05
_log = logging.getLogger(__name__)


class Spending(Protocol):
    """What clients have used here, and what they have used elsewhere."""

    def take(self) -> list[Spent]:
        """Return what has been used since the last call."""

    def hear(self, spent: Iterable[Spent]) -> None:
        """Count what has been used elsewhere."""


class Sharing:
    """One process's part: `fleet` returns all ranks that there are.

    `ways` take each message; `spending` is None where no client has a limit.
    """

    def __init__(
        self, fleet: Callable[[], Iterable[Rank]], router: str, sender: str, spending: Spending | None = None
    ) -> None:
        self.telling = Telling(router, sender, self._wake)
        self.accounts = self.telling.accounts
        self.peers = Peers(self._find)
        self.ways: list[Callable[[bytes], None]] = []
        self.undecodable = 0
        self._fleet = fleet
        self._spending = spending
        self._ranks: dict[Name, Rank] | None = None
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Begin to tell."""
        self._round()
        if self._spending is not None:
            self._spend(self._spending)

    def close(self) -> None:
        """Say farewell, and tell no more."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._send([self.telling.farewell()])
        self.ways.clear()

    def changed(self) -> None:
        """Take note that a worker has come, gone, or become another."""
        self._ranks = None

    def hear(self, payload: bytes, *, same_clock: bool) -> bool:
        """Take in what a peer has sent; what is no message is counted and dropped.

        `same_clock`: it comes from a sibling on this machine. Says whether it was meant to be heard so.
        """
        try:
            said = decode(payload)
        except ValueError as error:
            if not self.undecodable % 1000:
                _log.warning("a message of another router or process was not used: %.200s", error)
            self.undecodable += 1
            return True
        if (said.router == self.telling.router) is not same_clock or said.sender == self.telling.sender:
            return False  # what siblings say comes from them, and not by a way round
        news = self.peers.hear(said, time.monotonic(), same_clock=same_clock)
        if news and same_clock and self._spending is not None:
            self._spending.hear(said.spent)
        return True

    def ranks(self) -> dict[Name, Rank]:
        """Return the fleet's ranks by the names that all routers know them by."""
        if self._ranks is None:
            self._ranks = {(name_of(rank.worker), rank.rank): rank for rank in self._fleet()}
        return self._ranks

    def _find(self, worker: str, rank: int) -> Rank | None:
        return self.ranks().get((worker, rank))

    def _wake(self) -> None:
        """Tell of the first change of a bunch, and of those that follow it shortly."""
        self._timers["flush"] = self._loop.call_later(FLUSH_SECONDS, self._flush)

    def _flush(self, spent: Sequence[Spent] = ()) -> None:
        named = ((name, rank) for (name, _), rank in self.ranks().items())
        self._send(self.telling.changes(named, spent))

    def _round(self) -> None:
        self._timers["round"] = self._loop.call_later(ROUND_SECONDS, self._round)
        ranks = self.ranks()
        self._send(self.telling.everything((name, rank) for (name, _), rank in ranks.items()))
        silent = self.peers.tick(ranks, time.monotonic())
        if silent:
            _log.warning("not heard any more, so that their load counts no longer: %s", ", ".join(silent))

    def _spend(self, spending: Spending) -> None:
        self._timers["spent"] = self._loop.call_later(SPENT_SECONDS, self._spend, spending)
        spent = spending.take()
        if spent:
            if "flush" in self._timers:
                self._timers["flush"].cancel()
            self._flush(spent)

    def _send(self, messages: list[bytes]) -> None:
        for way in self.ways:
            for message in messages:
                way(message)
