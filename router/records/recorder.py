"""A record as the router keeps it: what its parts tell, and an observer of requests.

On the loop it only puts things down for the writer's thread: about 0.4 us for each thing, of which a request
has eight.
"""

from __future__ import annotations

import time
from itertools import count
from secrets import token_hex
from time import gmtime, strftime
from typing import TYPE_CHECKING, Any

import msgspec

from router import __version__
from router.errors import ConfigError
from router.fleet.parts import Parts
from router.observe.story import Moment
from router.records import entries
from router.records.codes import Codes
from router.records.files import Files
from router.records.items import RawChosen
from router.records.scribe import Scribe, number_of
from router.records.taps import NotedRandom, RecordedCursor, RecordedIndex, RecordedLoad, RecordedView, Tap
from router.records.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from router.core.cost import Weights
    from router.core.index import Index
    from router.core.ledger import Load
    from router.core.rank import Rank
    from router.core.view import View
    from router.fleet.worker import Worker
    from router.observe.story import Story

VIEWS_SECONDS = 10.0
_NOTE = "record"


class Recorder:
    """Keeps one session's record in a directory. Raises ConfigError when nothing can be written there.

    `random` is to be drawn from, `observe` is an observer of requests. `shared`: there are other processes of
    which this one hears.
    """

    def __init__(
        self,
        directory: Path,
        most_bytes: int,
        policy: str,
        weights: Weights,
        max_blocks: int,
        portion: int,
        *,
        shared: bool = False,
    ) -> None:
        now = time.time()
        name = f"{strftime('%Y%m%dT%H%M%SZ', gmtime(now))}-{token_hex(4)}"
        session = entries.Session(
            name,
            0,
            __version__,
            now,
            time.monotonic(),
            policy,
            msgspec.to_builtins(weights),
            max_blocks,
            portion,
            shared,
        )
        scribe = Scribe(session, Codes(lambda: time.sleep(0)))
        self._writer = Writer(scribe, Files(directory, name, most_bytes))
        self.random = NotedRandom()
        self._weights = msgspec.structs.replace(weights)
        self._swept = 0
        self._ranks = count()
        self._requests = count()
        self._views_due = 0.0
        self._on = {
            Moment.CHOSEN: self._chosen,
            Moment.SENT: self._sent,
            Moment.COMPUTED: self._computed,
            Moment.STARTED: self._started,
            Moment.REPORTED: self._reported,
            Moment.CONTRADICTED: self._contradicted,
            Moment.TRUSTED: self._trusted,
            Moment.OVER: self._over,
            Moment.ENDED: self._ended,
        }
        try:
            self._writer.start()
        except OSError as error:
            raise ConfigError(
                f"{directory}: no record can be kept there: {error.strerror or error}"
            ) from error

    @property
    def bytes(self) -> int:
        """How many have been written."""
        return self._writer.bytes

    @property
    def recording(self) -> bool:
        """Whether it goes on: not when the disk has failed or could not keep up."""
        return not self._writer.ended

    def put(self, item: Any, held: int = 0) -> None:
        """Have something written, after the work that the index has done before it."""
        writer = self._writer
        if writer.ended:
            return
        if self._swept:
            writer.put(entries.Swept(self._swept))
            self._swept = 0
        writer.put(item, held or getattr(item, "held", 0))

    @property
    def parts(self) -> Parts:
        """What a fleet is to be made of."""
        return Parts(self.index, self.view, self.cursor, self.load, self.ticked, self.expired)

    def index(self, max_blocks: int, wake: Callable[[], None] | None = None) -> Index:
        """See `Parts.index`."""
        return RecordedIndex(max_blocks, wake, self._count_sweep)

    def view(self, worker: str, number: int, index: Index, model: str, **settings: Any) -> View:
        """See `Parts.view`."""
        tap = Tap(next(self._ranks), self.put)
        view = RecordedView(tap, index, model, **settings)
        ttl, bound = view.predicted.ttl, settings["predicted_bound"]
        self.put(
            entries.Ranked(
                tap.rank,
                worker,
                number,
                model,
                view.block_size,
                view.bigram,
                view.counts_copies,
                ttl,
                bound,
            )
        )
        return view

    def cursor(self, view: View, **settings: Any) -> RecordedCursor:
        """See `Parts.cursor`."""
        assert isinstance(view, RecordedView)  # noqa: S101 - all are
        return RecordedCursor(view.tap, **settings)

    def load(self, view: View, earlier: Load | None) -> Load:
        """See `Parts.load`."""
        assert isinstance(view, RecordedView)  # noqa: S101 - all are
        if earlier is None:
            return RecordedLoad(tap=view.tap)
        assert isinstance(earlier, RecordedLoad)  # noqa: S101 - all are
        earlier.inherit(view.tap)
        return earlier

    def ticked(self, now: float, workers: Iterable[Worker]) -> None:
        """See `Parts.ticked`; from time to time all views are written, to be compared in a re-run."""
        self.put(entries.Ticked(now))
        if now >= self._views_due:
            self._views_due = now + VIEWS_SECONDS
            self.views(workers)

    def expired(self, rank: Rank, now: float) -> None:
        """See `Parts.expired`."""
        self.put(entries.Expired(now, number_of(rank)))

    def views(self, workers: Iterable[Worker], *, last: bool = False) -> None:
        """Write what all views are; about 5 us a rank."""
        rows = [_row(worker, rank) for worker in workers for rank in worker.ranks]
        self.put(entries.Views(time.monotonic(), rows, last))

    def close(self) -> None:
        """Write what there is; waits for the disk."""
        self._writer.close()

    def _count_sweep(self) -> None:
        self._swept += 1

    def observe(self, moment: Moment, story: Story) -> None:
        """Note what happens to a request."""
        note = self._on.get(moment)
        if note is not None:
            note(story)

    def _chosen(self, story: Story) -> None:
        number = story.notes.get(_NOTE)
        if number is None:
            number = story.notes[_NOTE] = next(self._requests)
        plan, last = story.plan, story.decisions[-1]
        if last.weights != self._weights:
            self._weights = msgspec.structs.replace(last.weights)
            self.put(entries.Weighed(time.monotonic(), msgspec.to_builtins(last.weights)))
        if plan is not None:
            draws, exchange = self.random.taken(), story.exchange
            self.put(
                RawChosen(
                    time.monotonic(),
                    number,
                    exchange.id,
                    story.kind.value,
                    plan,
                    last.policy.name,
                    last.facts,
                    last.chosen,
                    draws,
                    len(plan.prompt.tokens),
                )
            )

    def _sent(self, story: Story) -> None:
        last = story.tries[-1]
        decode = -1 if last.decode is None else number_of(last.decode.rank)
        self.put(entries.Sent(last.now, story.notes[_NOTE], number_of(last.first.rank), decode, last.keeps))

    def _computed(self, story: Story) -> None:
        self.put(entries.Computed(time.monotonic(), story.notes[_NOTE]))

    def _started(self, story: Story) -> None:
        self.put(entries.Started(time.monotonic(), story.notes[_NOTE]))

    def _reported(self, story: Story) -> None:
        last = story.tries[-1]
        told = last.prompt_tokens, last.cached_tokens
        if told != (None, None):
            self.put(entries.Reported(time.monotonic(), story.notes[_NOTE], *told))

    def _contradicted(self, story: Story) -> None:
        self.put(entries.Contradicted(story.notes[_NOTE], story.tries[-1].held))

    def _trusted(self, story: Story) -> None:
        self.put(entries.Trusted(story.notes[_NOTE], story.tries[-1].came_true))

    def _over(self, story: Story) -> None:
        self.put(entries.Over(time.monotonic(), story.notes[_NOTE], story.tries[-1].answered))

    def _ended(self, story: Story) -> None:
        number = story.notes.get(_NOTE)
        if number is not None:
            self.put(entries.Ended(time.monotonic(), number, story.status, story.error))


def _row(worker: Worker, rank: Rank) -> entries.Row:
    view, stream = rank.view, worker.stream(rank.rank)
    assert isinstance(view, RecordedView)  # noqa: S101 - all are
    return entries.Row(
        view.tap.rank,
        "" if stream is None else str(stream.cursor.state),
        None if stream is None else stream.cursor.last_seq,
        view.blocks(),
        len(view.predicted),
        view.orphans.blocks,
        dict(view.resets),
        rank.load.inflight_tokens,
        rank.load.active_requests,
    )
