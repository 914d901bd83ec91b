"""A session once more: the same core, fed with what was recorded, at the times of the record.

What the streams brought goes through `Cursor` and `View`, requests through `candidates`, `choose`, `predict`
and the ledger. Random draws are the recorded ones. Each choice and each row of the views must then be the
recorded one; what is not is told as a difference. The recorded rank is the one that is followed, so that one
difference does not make others.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from functools import singledispatchmethod
from random import Random
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from router.core.blocks import Namespace, PromptBlocks, block_keys, namespace_root
from router.core.cost import POLICIES, Policy, Weights, choose
from router.core.cursor import Cursor
from router.core.decide import gather
from router.core.index import Index
from router.core.ledger import Ledger
from router.core.rank import Rank
from router.core.steps import Apply, Reset, Step
from router.core.view import View
from router.core.wire import Batch, Cleared, Event, Removed
from router.pairs.choice import DECODE
from router.records import entries
from router.records.codes import as_tokens, numbers
from router.records.format import RecordError
from router.records.request import Request
from router.records.seal import opened, salted

if TYPE_CHECKING:
    from array import array
    from collections.abc import Sequence


T = TypeVar("T")
MOST_DIFFERENCES = 1000
# What other processes have a part in.
_OF_OTHERS = frozenset({"predicted"})
# Policies that hash what is in the record as a code only; nor can one of the operator's own be asked again.
UNREPEATABLE = frozenset({"session", "prefix_hash"})


@dataclass(frozen=True, slots=True)
class Difference:
    """What was recorded, and what the re-run has in its place; `where` says of what."""

    where: str
    recorded: Any
    rerun: Any


@dataclass(slots=True)
class Followed:
    """One rank in the re-run, by its number, and what waits between its cursor and its view."""

    number: int
    rank: Rank
    cursor: Cursor | None = None
    pending: deque[Batch | Reset] = field(default_factory=deque)


class Draws(Random):
    """Draws what was drawn; when that is used up, from a seed."""

    def __init__(self) -> None:
        super().__init__(0)
        self.left: deque[float] = deque()

    def choices(  # type: ignore[override]  # the stub allows for more than is used
        self, population: Sequence[T], weights: Any = None, *, cum_weights: Any = None, k: int = 1
    ) -> list[T]:
        """Return what stands in the recorded places."""
        if len(self.left) < k:
            return super().choices(population, weights, cum_weights=cum_weights, k=k)
        return [population[self._place(len(population))] for _ in range(k)]

    def choice(self, seq: Sequence[T]) -> T:  # type: ignore[override]  # the stub asks for more than is used
        """Return what stands in the recorded place."""
        return seq[self._place(len(seq))] if self.left else super().choice(seq)

    def sample(self, population: Sequence[T], k: int, *, counts: Any = None) -> list[T]:  # noqa: ARG002
        """Return what stands in the recorded places; nobody counts here."""
        if len(self.left) < k:
            return super().sample(population, k)
        return [population[self._place(len(population))] for _ in range(k)]

    def _place(self, size: int) -> int:
        return min(int(self.left.popleft()), size - 1)


class Rerun:
    """Takes a session's entries in their order. `whole`: the record begins where the session did.

    Raises RecordError for entries that do not fit together.
    """

    def __init__(self, session: entries.Session) -> None:
        self.session = session
        self.whole = session.part == 0
        self.differences: list[Difference] = []
        self.different = self.choices = self.rows = self.batches = 0
        self.ended = False
        self.last = session.now
        # The most blocks that a rank's view has ever held.
        self.peaks: dict[int, int] = {}
        self._index = Index(session.index_max_blocks)
        self._weights = weights_of(session.weights)
        self._ledger = Ledger()
        self._draws = Draws()
        self._ranks: dict[int, Followed] = {}
        # Numbers, and the same list of ranks from choice to choice (`core.lineup`).
        self._sets: dict[int, tuple[list[int], list[Rank]]] = {}
        self._requests: dict[int, Request] = {}

    def take(self, entry: entries.Entry) -> None:
        """Do what an entry says."""
        try:
            self._do(entry)
        except (ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError) as error:
            if self.whole:
                why = f"{type(entry).__name__} does not fit what comes before it: {error!r:.80}"
                raise RecordError(f"session {self.session.session}: an entry {why}") from error

    @singledispatchmethod
    def _do(self, entry: entries.Entry) -> None:
        raise TypeError(entry)

    # ranks and their streams

    @_do.register
    def _ranked(self, entry: entries.Ranked) -> None:
        if entry.rank in self._ranks:
            return  # it is repeated at the head of each part
        view = View(
            self._index,
            entry.model,
            block_size=entry.block_size,
            counts_copies=entry.counts_copies,
            predicted_ttl=entry.predicted_ttl,
            predicted_bound=entry.predicted_bound,
        )
        self._ranks[entry.rank] = Followed(entry.rank, Rank(entry.worker, entry.number, view))

    @_do.register
    def _gone(self, entry: entries.Gone) -> None:
        self._ranks.pop(entry.rank).rank.view.close()

    @_do.register
    def _opened(self, entry: entries.Opened) -> None:
        followed = self._ranks[entry.rank]
        followed.cursor = Cursor(can_replay=entry.can_replay)
        followed.pending.clear()

    @_do.register
    def _live(self, entry: entries.Live) -> None:
        followed, cursor = self._stream(entry.rank)
        batch = _batch(entry.batch)
        self.batches += 1
        if not entry.at_once:
            self._wait(followed, cursor.live(entry.seq, batch, entry.now, entry.size))
        elif cursor.follows(entry.seq, batch, entry.now):
            self._apply(followed, batch)
        else:
            self._differ(f"batch {entry.seq} of {_named(followed.rank)}", "the next one", "another one")
            self._wait(followed, cursor.live(entry.seq, batch, entry.now, entry.size))

    @_do.register
    def _replayed(self, entry: entries.Replayed) -> None:
        followed, cursor = self._stream(entry.rank)
        self.batches += 1
        self._wait(followed, cursor.replayed(entry.seq, _batch(entry.batch), entry.now))

    @_do.register
    def _replay_ended(self, entry: entries.ReplayEnded) -> None:
        followed, cursor = self._stream(entry.rank)
        self._wait(followed, cursor.replay_ended(entry.now, entry.failure))

    @_do.register
    def _connected(self, entry: entries.Connected) -> None:
        followed, cursor = self._stream(entry.rank)
        self._wait(followed, cursor.connect(entry.now))

    @_do.register
    def _linked(self, entry: entries.Linked) -> None:
        followed, cursor = self._stream(entry.rank)
        self._wait(followed, cursor.linked(entry.now, again=entry.again))

    @_do.register
    def _unlinked(self, entry: entries.Unlinked) -> None:
        self._stream(entry.rank)[1].unlinked(entry.why, entry.now)

    @_do.register
    def _forgot(self, entry: entries.Forgot) -> None:
        followed, cursor = self._stream(entry.rank)
        followed.pending.clear()
        cursor.forget(entry.now, until_clear=entry.until_clear, until_word=entry.until_word)

    @_do.register
    def _completed(self, entry: entries.Completed) -> None:
        followed, cursor = self._stream(entry.rank)
        self._wait(followed, cursor.completed(entry.now))

    @_do.register
    def _healed(self, entry: entries.Healed) -> None:
        followed, cursor = self._stream(entry.rank)
        self._wait(followed, cursor.heal(entry.now))

    @_do.register
    def _distrusted(self, entry: entries.Distrusted) -> None:
        followed, cursor = self._stream(entry.rank)
        self._wait(followed, cursor.distrust(entry.now))

    @_do.register
    def _damaged(self, entry: entries.Damaged) -> None:
        self._stream(entry.rank)[1].damaged(entry.why, entry.now)

    def _stream(self, rank: int) -> tuple[Followed, Cursor]:
        followed = self._ranks[rank]
        assert followed.cursor is not None, "it has no stream"  # noqa: S101 - told by `take`
        return followed, followed.cursor

    def _wait(self, followed: Followed, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Apply):
                followed.pending.append(step.batch)
            elif isinstance(step, Reset):
                followed.pending.append(step)

    @_do.register
    def _applied(self, entry: entries.Applied) -> None:
        """Apply the batch of this time; what waited before it has been dropped (Stream.forget)."""
        followed = self._ranks[entry.rank]
        pending = followed.pending
        while pending:
            step = pending.popleft()
            if isinstance(step, Batch) and step.ts == entry.ts:
                self._apply(followed, step)
                return
        self._differ(f"batch of {entry.ts} of {_named(followed.rank)}", "applied", "not there")

    def _apply(self, followed: Followed, batch: Batch) -> None:
        try:
            followed.rank.view.apply(batch)
        except (ArithmeticError, LookupError, TypeError, ValueError):
            return  # as it did then: a reset for this cause comes next
        held = max(followed.rank.view.blocks().values(), default=0)
        self.peaks[followed.number] = max(self.peaks.get(followed.number, 0), held)

    @_do.register
    def _reset(self, entry: entries.Reset) -> None:
        followed = self._ranks[entry.rank]
        pending = followed.pending
        if pending and isinstance(pending[0], Reset) and pending[0].cause == entry.cause:
            pending.popleft()
        followed.rank.view.reset(entry.cause)

    @_do.register
    def _ticked(self, entry: entries.Ticked) -> None:
        self.last = entry.now
        for followed in self._ranks.values():
            followed.rank.view.predicted.forgive()

    @_do.register
    def _expired(self, entry: entries.Expired) -> None:
        followed = self._ranks.get(entry.rank)
        if followed is not None:  # else it left while predictions were being dropped
            followed.rank.view.predicted.expire(entry.now)

    @_do.register
    def _swept(self, entry: entries.Swept) -> None:
        for _ in range(entry.portions):
            if not self._index.sweep(self.session.sweep_portion):
                return

    # what others say of the load

    @_do.register
    def _engine_said(self, entry: entries.EngineSaid) -> None:
        load = self._ranks[entry.rank].rank.load
        load.usage, load.capacity_tokens = entry.usage, entry.capacity
        load.hear_engine(entry.tokens, entry.requests)

    @_do.register
    def _engine_forgotten(self, entry: entries.EngineForgotten) -> None:
        self._ranks[entry.rank].rank.load.forget_engine()

    @_do.register
    def _engine_asked(self, entry: entries.EngineAsked) -> None:
        self._ranks[entry.rank].rank.load.listen()

    @_do.register
    def _peers_said(self, entry: entries.PeersSaid) -> None:
        self._ranks[entry.rank].rank.load.hear(entry.tokens, entry.requests)

    # requests

    @_do.register
    def _candidates(self, entry: entries.Ranks) -> None:
        ranks = [self._ranks[number].rank for number in entry.ranks]
        self._sets[entry.number] = entry.ranks, ranks

    @_do.register
    def _prompt(self, entry: entries.Prompt) -> None:
        known = self._requests.get(entry.request)
        keys = prompt_keys(entry)
        if known is not None:
            known.keys.update(keys)
            return
        self._requests[entry.request] = request_of(entry, keys)

    @_do.register
    def _chosen(self, entry: entries.Chosen) -> None:
        request = self._requests[entry.request]
        numbers, ranks = self._sets[entry.among]
        facts = gather(self._index, ranks, request.prompt, request.session)
        there = facts.candidate(numbers.index(entry.rank))
        request.chosen.append(there)
        self.choices += 1
        if self.session.shared:
            return
        where = f"request {request.id}"
        if entry.policy not in UNREPEATABLE and ":" not in entry.policy:
            self._draws.left.extend(entry.draws)
            again = choose(policy_of(entry.policy), facts, self._weights, self._draws)
            self._compare(f"{where}: rank", _named(there.rank), _named(again.rank))
        for name in ("cached_tokens", "predicted_tokens", "uncached_tokens"):
            self._compare(f"{where}: {name}", getattr(entry, name), getattr(there, name))

    @_do.register
    def _sent(self, entry: entries.Sent) -> None:
        request = self._requests[entry.request]
        *_, first = (one for one in request.chosen if one.rank is self._ranks[entry.rank].rank)
        request.begin(first, self._ledger, entry.now)
        if entry.decode >= 0:
            *_, decode = (one for one in request.chosen if one.rank is self._ranks[entry.decode].rank)
            request.join(decode, self._ledger, entry.now, keeps=entry.keeps)
        request.chosen.clear()

    @_do.register
    def _computed(self, entry: entries.Computed) -> None:
        self._requests[entry.request].compute()

    @_do.register
    def _contradicted(self, entry: entries.Contradicted) -> None:
        request = self._requests[entry.request]
        view = request.predicted[0][0].view
        view.contradict(request.prompt.keys(view.block_size or 1, bigram=False), entry.held)

    @_do.register
    def _trusted(self, entry: entries.Trusted) -> None:
        self._requests[entry.request].predicted[0][0].view.predicted.learn(entry.share)

    @_do.register
    def _over(self, entry: entries.Over) -> None:
        self._requests[entry.request].end(answered=entry.answered)

    @_do.register
    def _ended(self, entry: entries.Ended) -> None:
        self._requests.pop(entry.request, None)

    @_do.register
    def _weighed(self, entry: entries.Weighed) -> None:
        self._weights = weights_of(entry.weights)

    @_do.register
    def _nothing(self, entry: entries.Started | entries.Reported | entries.Session) -> None:
        """What changes nothing."""

    # what there is to compare

    @_do.register
    def _views(self, entry: entries.Views) -> None:
        self.ended = self.ended or entry.last
        if self.evicted:
            return
        for row in entry.rows:
            followed = self._ranks[row.rank]
            self.rows += 1
            for name, value in msgspec.structs.asdict(_row(followed)).items():
                if self.session.shared and name in _OF_OTHERS:
                    continue
                self._compare(f"view of {_named(followed.rank)}: {name}", getattr(row, name), value)

    @property
    def evicted(self) -> int:
        """How many blocks were given up for want of room.

        Which ones is not settled by what was recorded: of those matched at one time, some go sooner.
        """
        return self._index.evicted

    def rows_now(self) -> list[entries.Row]:
        """Return what all views are now."""
        return [_row(followed) for followed in self._ranks.values()]

    def _compare(self, where: str, recorded: object, rerun: object) -> None:
        if recorded != rerun:
            self._differ(where, recorded, rerun)

    def _differ(self, where: str, recorded: object, rerun: object) -> None:
        self.different += self.whole
        if self.whole and len(self.differences) < MOST_DIFFERENCES:
            self.differences.append(Difference(where, recorded, rerun))


def policy_of(name: str) -> Policy:
    """Return a policy by its name. Raises RecordError when there is none."""
    policy = DECODE if name == DECODE.name else POLICIES.get(name)
    if policy is None:
        raise RecordError(f"there is no policy {name:.40}")
    return policy


def weights_of(recorded: dict[str, int | float]) -> Weights:
    """Return the weights of a record. Raises RecordError for what are none."""
    try:
        return msgspec.convert(recorded, Weights)
    except msgspec.ValidationError as error:
        raise RecordError(f"the weights are none: {error}") from error


def prompt_keys(entry: entries.Prompt) -> dict[tuple[int, bool], array[int]]:
    """Return a prompt's block keys, as a re-run has them: it knows no neighbour pairs."""
    found = {}
    for blocks in entry.blocks:
        space = Namespace(entry.model, entry.lora, salted(entry.salt, bigram=blocks.bigram), entry.text)
        root = namespace_root(space, blocks.block_size)
        tokens = as_tokens(blocks.codes, blocks.block_size)
        found[blocks.block_size, False] = block_keys(tokens, blocks.block_size, root)
    return found


def prompt_of(entry: entries.Prompt, keys: dict[tuple[int, bool], array[int]]) -> PromptBlocks:
    """Return a prompt of which the keys are known, and tokens made up."""
    made_up = (as_tokens(blocks.codes, blocks.block_size) for blocks in entry.blocks)
    return PromptBlocks(
        next(made_up, b"") or (b"\0" if entry.blocks else b""),  # which is not known, but no block
        entry.tokens,
        Namespace(entry.model, entry.lora, entry.salt, entry.text),
        reads_cache=entry.reads_cache,
        reusable=entry.reusable,
        keys=keys,
    )


def request_of(entry: entries.Prompt, keys: dict[tuple[int, bool], array[int]]) -> Request:
    """Return a request that has been read."""
    session = None if entry.session is None else entry.session.encode()
    return Request(entry.id, session, prompt_of(entry, keys), keys)


def _batch(sealed: entries.Sealed) -> Batch:
    return Batch(sealed.ts, [_event(event) for event in sealed.events], None, sealed.undecodable)


def _event(event: entries.Store | entries.Removal | entries.Clear) -> Event:
    if isinstance(event, entries.Store):
        return opened(event)
    if isinstance(event, entries.Removal):
        return Removed(list(numbers(event.hashes)), event.tier, event.group)
    return Cleared()


def _row(followed: Followed) -> entries.Row:
    view, load, cursor = followed.rank.view, followed.rank.load, followed.cursor
    return entries.Row(
        followed.number,
        "" if cursor is None else str(cursor.state),
        None if cursor is None else cursor.last_seq,
        view.blocks(),
        len(view.predicted),
        view.orphans.blocks,
        dict(view.resets),
        load.inflight_tokens,
        load.active_requests,
    )


def _named(rank: Rank) -> str:
    return f"{rank.worker} rank {rank.rank}"
