"""What the other processes and routers have said of themselves, laid over this one's loads and predictions.

The load of a rank that policies see is this process's own and that of all peers. A peer counts as long as it
is heard: after `AGE_SECONDS` of silence, when it leaves, or when somebody knows that it is gone, it counts
nothing. What it predicted is entered with this process's own predictions: it has the same time to live,
events settle it, and it dies with a reset of the view.

What was predicted before a reset must not be entered after it. Every prediction carries the sender's clock;
for a peer on the same machine that is our clock, for another its least delay so far makes it ours, which can
make it look older, never newer by more than a fast message takes. A view that has been emptied more often
than when last looked at counts as reset now: later than it was.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, TypeAlias

from router.core.predicted import EACH

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from router.core.rank import Rank
    from router.core.said import RankKeys, Said
    from router.core.view import View

    Find = Callable[[str, int], Rank | None]

Name: TypeAlias = tuple[str, int]

NOTHING = 0, 0, 0
AGE_SECONDS = 2.0
# A network's delays vary; what another machine predicted so shortly after a reset is left out.
REMOTE_SLACK_SECONDS = 0.05
# How fast another machine's clock may fall behind ours, as a share of the time.
_DRIFT = 0.001
_MOST_PEERS = 1024


@dataclass(slots=True)
class _Peer:
    """One sender. `loads`: tokens, requests, and the round they were told in. `lag`: see above, seconds."""

    router: str
    number: int
    heard: float
    lag: float
    whole: bool = False  # every message of the present round has been heard
    loads: dict[Name, tuple[int, int, int]] = field(default_factory=dict)


@dataclass(slots=True)
class _Looked:
    """A view as last looked at, and the latest time at which it may have been reset."""

    view: View
    emptied: int
    since: float


class Peers:
    """`find` returns a rank by its worker's name and number, if the fleet has it. `now` is monotonic seconds.

    Counts: messages `heard`, `lost` on the way, and `stale` (older than what is known, or from too many).
    """

    def __init__(self, find: Find) -> None:
        self.heard = self.lost = self.stale = 0
        self._find = find
        self._ticked = 0.0
        self._peers: dict[str, _Peer] = {}
        self._sums: defaultdict[Name, list[int]] = defaultdict(lambda: [0, 0])
        self._looked: dict[Name, _Looked] = {}

    def routers(self) -> set[str]:
        """Return the routers that are heard now."""
        return {peer.router for peer in self._peers.values()}

    def load_of(self, names: Iterable[Name], router: str) -> tuple[int, int]:
        """Return tokens and requests that routers other than `router` have at some ranks."""
        peers = [peer for peer in self._peers.values() if peer.router != router]
        found = [peer.loads[name] for name in names for peer in peers if name in peer.loads]
        return sum(tokens for tokens, _, _ in found), sum(requests for _, requests, _ in found)

    def hear(self, said: Said, now: float, *, same_clock: bool) -> bool:
        """Take a message in; say whether it was news. About 1 us, and 1 us a load."""
        lag = 0.0 if same_clock else now - said.sent
        peer = self._peers.get(said.sender)
        if peer is None:
            fits = len(self._peers) < _MOST_PEERS and not said.leaves
            peer = _Peer(said.router, said.number - 1, now, lag) if fits else None
        if peer is None or said.number <= peer.number or now - said.sent - min(peer.lag, lag) > AGE_SECONDS:
            self.stale += 1
            return False
        self._peers[said.sender] = peer
        peer.lag = min(peer.lag + _DRIFT * (now - peer.heard), lag)
        self._take(said, peer, now, 0.0 if same_clock else REMOTE_SLACK_SECONDS)
        return True

    def _take(self, said: Said, peer: _Peer, now: float, slack: float) -> None:
        self.heard += 1
        missing = said.number - peer.number - 1
        self.lost += missing
        peer.whole = peer.whole and not missing
        peer.number, peer.heard = said.number, now
        if said.leaves:
            self.forget(said.sender)
            return
        for load in said.loads:
            self._set(peer, (load.worker, load.rank), (load.tokens, load.requests, said.round))
        if said.ends_round:
            self._end_round(peer, said.round)
        if said.predicted or said.withdrawn:
            self._foretell(said, now, peer.lag - slack)

    def _end_round(self, peer: _Peer, number: int) -> None:
        """Forget what a whole round has not told again."""
        if peer.whole:
            for name in [name for name, load in peer.loads.items() if load[2] < number]:
                self._set(peer, name)
        peer.whole = True

    def _set(self, peer: _Peer, name: Name, load: tuple[int, int, int] = NOTHING) -> None:
        """Note a peer's load at one rank, where the fleet has that rank."""
        rank = self._find(*name)
        old = peer.loads.pop(name, NOTHING)
        new = NOTHING if rank is None else load
        if new[0] or new[1]:
            peer.loads[name] = new
        total = self._sums[name]
        total[0] += new[0] - old[0]
        total[1] += new[1] - old[1]
        if rank is not None:
            rank.load.hear(*total)
        if not any(total):
            del self._sums[name]

    def _foretell(self, said: Said, now: float, shift: float) -> None:
        for told in said.predicted:
            rank = self._find(told.worker, told.rank)
            if rank is not None and told.at + shift > self._look((told.worker, told.rank), rank, now):
                for piece in _pieces(told):
                    rank.view.predicted.add(piece, now)
        for told in said.withdrawn:
            rank = self._find(told.worker, told.rank)
            if rank is not None:
                rank.view.predicted.settle_all(chain.from_iterable(_pieces(told)))

    def _look(self, name: Name, rank: Rank, now: float) -> float:
        """Return the latest time at which a rank's view may have been reset."""
        looked, emptied = self._looked.get(name), rank.view.emptied
        if looked is None and not emptied:
            looked = self._looked[name] = _Looked(rank.view, 0, -inf)
        elif looked is None or looked.view is not rank.view or looked.emptied != emptied:
            looked = self._looked[name] = _Looked(rank.view, emptied, now)
        return looked.since

    def tick(self, ranks: Mapping[Name, Rank], now: float) -> list[str]:
        """Look at all views, let go of peers that are silent, and return who they are.

        To be called about twice a second. A rank that is new here gets what is known of it.
        """
        for name in [name for name in self._looked if name not in ranks]:
            del self._looked[name]
        for name, rank in ranks.items():
            self._look(name, rank, now)
            rank.load.hear(*self._sums.get(name, (0, 0)))
        # When we have not been awake ourselves, what peers have told is still to be read.
        awake, self._ticked = now - self._ticked < AGE_SECONDS / 2, now
        silent = [name for name, peer in self._peers.items() if awake and now - peer.heard > AGE_SECONDS]
        for sender in silent:
            self.forget(sender)
        return silent

    def forget(self, sender: str) -> None:
        """Count a peer's load no more: it has gone. What it predicted lives its time."""
        peer = self._peers.pop(sender, None)
        if peer is not None:
            for name in list(peer.loads):
                self._set(peer, name)


def _pieces(told: RankKeys) -> Iterable[array[int]]:
    """Return the keys in pieces so short that `Predicted.add` enters each: they have been thinned already."""
    keys = array("Q")
    keys.frombytes(told.keys)
    return (keys[at : at + EACH] for at in range(0, len(keys), EACH))
