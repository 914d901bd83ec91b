"""The fleet's pure parts, as they are made while a record is kept: each notes what it is told, then does it.

They take the places of `Index`, `View`, `Cursor` and `Random` (`router.fleet.parts`), so that without a
record nothing is in anybody's way.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

from router.core.cursor import Cursor
from router.core.events import Stored
from router.core.index import Index
from router.core.ledger import Load
from router.core.view import View
from router.records import entries
from router.records.items import RawLive, RawReplayed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from router.core.events import Batch
    from router.core.steps import Step

    Put = Callable[[Any], None]

T = TypeVar("T")


class Tap:
    """One rank's number, and where to put what happens to it.

    `at_once`: the batch that the cursor has just taken is the one that the view applies next.
    """

    __slots__ = ("at_once", "put", "rank")

    def __init__(self, rank: int, put: Put) -> None:
        self.rank = rank
        self.put = put
        self.at_once = False


class RecordedIndex(Index):
    """Counts the portions of work done between two other things."""

    def __init__(self, max_blocks: int, wake: Callable[[], None] | None, swept: Callable[[], None]) -> None:
        super().__init__(max_blocks, wake)
        self._swept = swept

    def sweep(self, portion: int) -> bool:
        """See `Index.sweep`."""
        self._swept()
        return super().sweep(portion)


class RecordedView(View):
    """`tap` is that of its rank. What a view does of itself is not noted: a re-run does it, too."""

    def __init__(self, tap: Tap, index: Index, model: str, **settings: Any) -> None:
        self.tap = tap
        self._inside = False
        super().__init__(index, model, **settings)

    def apply(self, batch: Batch, *, past: bool = False) -> None:
        """See `View.apply`."""
        if self.tap.at_once:
            self.tap.at_once = False
        else:
            self.tap.put(entries.Applied(self.tap.rank, batch.ts))
        self._inside = True
        try:
            super().apply(batch, past=past)
        finally:
            self._inside = False

    def work(self, blocks: int) -> bool:
        """See `View.work`."""
        self._inside = True
        try:
            return super().work(blocks)
        finally:
            self._inside = False

    def reset(self, cause: str, *, past: bool = False) -> None:
        """See `View.reset`."""
        if not self._inside:
            self.tap.put(entries.Reset(time.monotonic(), self.tap.rank, cause))
        super().reset(cause, past=past)

    def close(self) -> None:
        """See `View.close`."""
        self.tap.put(entries.Gone(self.tap.rank))
        super().close()


class RecordedCursor(Cursor):
    """See `Cursor`."""

    def __init__(self, tap: Tap, *, can_replay: bool, **settings: Any) -> None:
        super().__init__(can_replay=can_replay, **settings)
        self._tap = tap
        tap.put(entries.Opened(tap.rank, can_replay))

    def connect(self, now: float) -> list[Step]:
        """See `Cursor.connect`."""
        self._tap.put(entries.Connected(now, self._tap.rank))
        return super().connect(now)

    def unlinked(self, why: str, now: float) -> None:
        """See `Cursor.unlinked`."""
        self._tap.put(entries.Unlinked(now, self._tap.rank, why))
        super().unlinked(why, now)

    def linked(self, now: float, *, again: bool) -> list[Step]:
        """See `Cursor.linked`."""
        self._tap.put(entries.Linked(now, self._tap.rank, again))
        return super().linked(now, again=again)

    def forget(self, now: float, *, until_clear: bool = False, until_word: bool = False) -> None:
        """See `Cursor.forget`."""
        self._tap.put(entries.Forgot(now, self._tap.rank, until_clear, until_word))
        super().forget(now, until_clear=until_clear, until_word=until_word)

    def completed(self, now: float) -> list[Step]:
        """See `Cursor.completed`."""
        self._tap.put(entries.Completed(now, self._tap.rank))
        return super().completed(now)

    def heal(self, now: float) -> list[Step]:
        """See `Cursor.heal`; it is called again and again, and mostly for nothing."""
        if self.to_heal:
            self._tap.put(entries.Healed(now, self._tap.rank))
        return super().heal(now)

    def distrust(self, now: float) -> list[Step]:
        """See `Cursor.distrust`."""
        self._tap.put(entries.Distrusted(now, self._tap.rank))
        return super().distrust(now)

    def damaged(self, why: str, now: float) -> None:
        """See `Cursor.damaged`."""
        self._tap.put(entries.Damaged(now, self._tap.rank, why))
        super().damaged(why, now)

    def follows(self, seq: int, batch: Batch, now: float) -> bool:
        """See `Cursor.follows`; a batch that does not follow goes through `live` next."""
        if not super().follows(seq, batch, now):
            return False
        self._tap.at_once = True
        self._tap.put(RawLive(now, self._tap.rank, seq, 0, True, batch, _tokens(batch)))
        return True

    def live(self, seq: int, batch: Batch, now: float, size: int = 0) -> list[Step]:
        """See `Cursor.live`."""
        self._tap.put(RawLive(now, self._tap.rank, seq, size, False, batch, _tokens(batch)))
        return super().live(seq, batch, now, size)

    def replayed(self, seq: int, batch: Batch, now: float) -> list[Step]:
        """See `Cursor.replayed`."""
        self._tap.put(RawReplayed(now, self._tap.rank, seq, batch, _tokens(batch)))
        return super().replayed(seq, batch, now)

    def replay_ended(self, now: float, failure: str = "") -> list[Step]:
        """See `Cursor.replay_ended`."""
        self._tap.put(entries.ReplayEnded(now, self._tap.rank, failure))
        return super().replay_ended(now, failure)


@dataclass(slots=True, eq=False)
class RecordedLoad(Load):
    """Notes what is said of the load by others; our own share is in the requests. See `Load`."""

    tap: Tap | None = None

    def hear(self, tokens: int, requests: int) -> None:
        """See `Load.hear`."""
        self._put(entries.PeersSaid, tokens, requests)
        Load.hear(self, tokens, requests)

    def hear_engine(self, tokens: int, requests: int) -> None:
        """See `Load.hear_engine`."""
        self._put(entries.EngineSaid, tokens, requests, self.usage, self.capacity_tokens)
        tap, self.tap = self.tap, None  # it listens anew by itself
        Load.hear_engine(self, tokens, requests)
        self.tap = tap

    def forget_engine(self) -> None:
        """See `Load.forget_engine`."""
        self._put(entries.EngineForgotten)
        Load.forget_engine(self)

    def listen(self) -> None:
        """See `Load.listen`."""
        self._put(entries.EngineAsked)
        Load.listen(self)

    def inherit(self, tap: Tap) -> None:
        """Be another rank's load from now on, with the requests that there are."""
        self._put(entries.Inherited, tap.rank)
        self.tap = tap
        self.forget_engine()

    def _put(self, kind: type, *said: float) -> None:
        if self.tap is not None:
            self.tap.put(kind(self.tap.rank, *said))


class NotedRandom(Random):
    """Keeps which places were drawn, until they are taken."""

    def __init__(self) -> None:
        super().__init__()
        self._drawn: list[float] = []

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]  # the stub asks for more than is used
        """See `Random.choice`."""
        place = super().choice(range(len(seq)))
        self._drawn.append(place)
        return seq[place]

    def sample(self, population: Sequence[T], k: int, *, counts: Any = None) -> list[T]:  # noqa: ARG002
        """See `Random.sample`; nobody counts here."""
        places = super().sample(range(len(population)), k)
        self._drawn += places
        return [population[place] for place in places]

    def choices(  # type: ignore[override]  # the stub allows for more than is used
        self, population: Sequence[T], weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[T]:
        """See `Random.choices`."""
        places = super().choices(range(len(population)), weights, cum_weights=cum_weights, k=k)
        self._drawn += places
        return [population[place] for place in places]

    def taken(self) -> list[float]:
        """Return what was drawn since the last time."""
        drawn, self._drawn = self._drawn, []
        return drawn


def _tokens(batch: Batch) -> int:
    """Return how many bytes of tokens a batch holds."""
    return sum([len(event.tokens) for event in batch.events if type(event) is Stored])
