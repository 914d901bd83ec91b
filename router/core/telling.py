"""What this process has to tell the others: which ranks' loads have changed, and what it has just predicted.

A request only marks its rank and leaves its keys; messages are made when the sender asks, some milliseconds
later and for all of that time together.
"""

from __future__ import annotations

import time
from array import array
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from router.core.accounts import Accounts
from router.core.decide import predict, withdraw
from router.core.predicted import entries
from router.core.rank import Rank
from router.core.said import KEY_BYTES, MOST_KEY_BYTES, MOST_LOADS, VERSION, RankKeys, RankLoad, Said, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from router.core.blocks import PromptBlocks
    from router.core.facts import Candidate
    from router.core.ledger import Load

    Named = Iterable[tuple[str, Rank]]

# Predictions that wait to be told; what is over it is not told.
_MOST_WAITING = 1024
# Entries that fit into one message.
_PIECE = MOST_KEY_BYTES // KEY_BYTES
# What stands beside the keys of one rank, roughly.
_NAME_BYTES = 64


class ToldTicket:
    """A `Ticket` each change of which is told; written out, because one within another costs 1 us more."""

    __slots__ = ("_context", "_load", "_open", "_telling", "_tokens", "_waits")

    def __init__(self, load: Load, tokens: int, context: int, telling: Telling) -> None:
        self._load = load
        self._tokens = tokens
        self._context = context
        self._telling = telling
        self._open = True
        self._waits = 1

    def first_token(self) -> None:
        """See `Ticket`."""
        load = self._load
        load.inflight_tokens -= self._tokens
        load.waiting_requests -= self._waits
        self._tokens = self._waits = 0
        load.show()
        telling = self._telling
        telling.dirty.add(load)
        if not telling.awake:
            telling.rouse()

    def close(self) -> None:
        """See `Ticket`."""
        if self._open:
            self._open = False
            self._load.active_requests -= 1
            self._load.context_tokens -= self._context
            self.first_token()


class Foretold(msgspec.Struct, gc=False):
    """Predicted keys that were news, from depth `start` on, so that they can be taken back."""

    keys: array[int]
    start: int

    def __iter__(self) -> Iterator[int]:
        return iter(self.keys)


class _Waiting(msgspec.Struct, gc=False):
    """Keys to be told. `at` is monotonic seconds."""

    rank: Rank
    at: float
    foretold: Foretold
    taken_back: bool


class Telling:
    """One process's. `wake` is called at the first thing to tell since `changes` was last called.

    `dirty` are the loads that have changed since then, `awake` whether there is anything to tell.
    """

    def __init__(self, router: str, sender: str, wake: Callable[[], None]) -> None:
        self.router = router
        self.sender = sender
        self.dropped = 0
        self.dirty: set[Load] = set()
        self.awake = False
        self._wake = wake
        self._dispatches = 0
        self._waiting: deque[_Waiting] = deque()
        self._number = 0
        self._round = 0
        self.accounts = Accounts(self._open, self._predict, self._withdraw)

    def rouse(self) -> None:
        """Say that there is something to tell."""
        self.awake = True
        self._wake()

    def _open(self, load: Load, uncached_tokens: int, prompt_tokens: int = 0) -> ToldTicket:
        """Enter a request as `Ledger.open` does; all in all about 0.2 us more, its ticket's ends included."""
        self.dirty.add(load)
        if not self.awake:
            self.rouse()
        self._dispatches += 1
        load.enter(self._dispatches, uncached_tokens, prompt_tokens)
        return ToldTicket(load, uncached_tokens, prompt_tokens, self)

    def _predict(self, chosen: Candidate, prompt: PromptBlocks, now: float) -> Iterable[int]:
        keys = predict(chosen, prompt, now)
        if not keys:
            return keys
        foretold = Foretold(keys, chosen.overlap_tokens // (chosen.rank.view.block_size or 1))
        self._keep(_Waiting(chosen.rank, time.monotonic(), foretold, taken_back=False))
        return foretold

    def _withdraw(self, rank: Rank, keys: Iterable[int]) -> None:
        withdraw(rank, keys)
        if isinstance(keys, Foretold):
            self._keep(_Waiting(rank, time.monotonic(), keys, taken_back=True))
            self.dirty.add(rank.load)
            if not self.awake:
                self.rouse()

    def _keep(self, waiting: _Waiting) -> None:
        if len(self._waiting) >= _MOST_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(waiting)

    def changes(self, ranks: Named) -> list[bytes]:
        """Return messages of what is new. `ranks` are those of the fleet, with their workers' names."""
        dirty, self.dirty, self.awake = self.dirty, set(), False
        told = [(name, rank) for name, rank in ranks if rank.load in dirty]
        names = {rank: name for name, rank in told}
        messages = [self._said(loads=_loads(told[at : at + MOST_LOADS])) for at in _steps(told)]
        self._add_keys(messages, names)
        return [encode(said) for said in messages]

    def everything(self, ranks: Named) -> list[bytes]:
        """Return the messages of a round: all that this process has under way."""
        self._round += 1
        told = [(name, rank) for name, rank in ranks if rank.load.own_requests or rank.load.own_tokens]
        messages = [self._said(loads=_loads(told[at : at + MOST_LOADS])) for at in _steps(told)]
        if not messages:
            messages.append(self._said())
        messages[-1].ends_round = True
        return [encode(said) for said in messages]

    def farewell(self) -> bytes:
        """Return the last message."""
        said = self._said()
        said.leaves = True
        return encode(said)

    def _said(self, loads: Sequence[RankLoad] = ()) -> Said:
        self._number += 1
        return Said(
            VERSION, self.router, self.sender, self._number, time.monotonic(), self._round, loads=list(loads)
        )

    def _add_keys(self, messages: list[Said], names: dict[Rank, str]) -> None:
        """Spread what has been predicted and taken back over the messages, and as many more as it takes."""
        left = MOST_KEY_BYTES if messages else 0
        for taken_back, told in self._told_keys(names):
            if len(told.keys) > left:
                messages.append(self._said())
                left = MOST_KEY_BYTES
            left -= len(told.keys) + _NAME_BYTES
            (messages[-1].withdrawn if taken_back else messages[-1].predicted).append(told)

    def _told_keys(self, names: dict[Rank, str]) -> Iterator[tuple[bool, RankKeys]]:
        waiting, self._waiting = self._waiting, deque()
        for one in waiting:
            name = names.get(one.rank)
            if name is None:  # the worker has become another one, or has gone
                continue
            keys = entries(one.foretold.keys, one.foretold.start)
            for at in range(0, len(keys), _PIECE):
                piece = keys[at : at + _PIECE].tobytes()
                yield one.taken_back, RankKeys(name, one.rank.rank, one.at, piece)


def _loads(told: Iterable[tuple[str, Rank]]) -> list[RankLoad]:
    return [
        RankLoad(name, rank.rank, max(0, rank.load.own_tokens), max(0, rank.load.own_requests))
        for name, rank in told
    ]


def _steps(told: Sequence[object]) -> range:
    return range(0, len(told), MOST_LOADS)
