"""What this process tells and hears: messages are made when something has changed, and all is told in rounds.

A change is told some milliseconds after the first one of a bunch. Twice a second everything is told, so that
what was lost is healed and everybody is known to be there.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from router.core.peers import Name, Peers
from router.core.said import decode
from router.core.telling import Telling
from router.share.names import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.core.rank import Rank

FLUSH_SECONDS = 0.005
ROUND_SECONDS = 0.5
_log = logging.getLogger(__name__)


class Sharing:
    """One process's part: `fleet` returns all ranks that there are, `ways` take each message."""

    def __init__(self, fleet: Callable[[], Iterable[Rank]], router: str, sender: str) -> None:
        self.telling = Telling(router, sender, self._wake)
        self.accounts = self.telling.accounts
        self.peers = Peers(self._find)
        self.ways: list[Callable[[bytes], None]] = []
        self.undecodable = 0
        self._fleet = fleet
        self._ranks: dict[Name, Rank] | None = None
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def start(self) -> None:
        """Begin to tell."""
        self._round()

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
        self.peers.hear(said, time.monotonic(), same_clock=same_clock)
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

    def _flush(self) -> None:
        named = ((name, rank) for (name, _), rank in self.ranks().items())
        self._send(self.telling.changes(named))

    def _round(self) -> None:
        self._timers["round"] = self._loop.call_later(ROUND_SECONDS, self._round)
        ranks = self.ranks()
        self._send(self.telling.everything((name, rank) for (name, _), rank in ranks.items()))
        silent = self.peers.tick(ranks, time.monotonic())
        if silent:
            _log.warning("not heard any more, so that their load counts no longer: %s", ", ".join(silent))

    def _send(self, messages: list[bytes]) -> None:
        for way in self.ways:
            for message in messages:
                way(message)
