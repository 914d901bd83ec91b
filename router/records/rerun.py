"""A session once more: the same core, fed with what was recorded, at the times of the record.

What the streams brought goes through `Cursor` and `View`, requests through `candidates`, `choose`, `predict`
and the ledger. Random draws are the recorded ones. Each choice and each row of the views must then be the
recorded one; what is not is told as a difference. The recorded rank is the one that is followed, so that one
difference does not make others.
"""

from __future__ import annotations

from functools import singledispatchmethod
from typing import TYPE_CHECKING

import msgspec

from router.core.cost import choose
from router.core.decide import gather
from router.core.index import Index
from router.core.ledger import Ledger
from router.core.rank import Rank
from router.core.view import View
from router.records import entries
from router.records.differences import Differences
from router.records.draws import Draws
from router.records.followed import Followed, OfRank, named
from router.records.format import RecordError
from router.records.revived import policy_of, prompt_keys, request_of, weights_of

if TYPE_CHECKING:
    from router.records.differences import Difference
    from router.records.request import Request

# What other processes have a part in.
_OF_OTHERS = frozenset({"predicted"})
# Policies that hash what is in the record as a code only; nor can one of the operator's own be asked again.
UNREPEATABLE = frozenset({"session", "prefix_hash"})


class Rerun:
    """Takes a session's entries in their order. `whole`: the record begins where the session did.

    Raises RecordError for entries that do not fit together.
    """

    def __init__(self, session: entries.Session) -> None:
        self.session = session
        self.whole = session.part == 0
        self.choices = self.rows = 0
        self.ended = False
        self.last = session.now
        self._differences = Differences(self.whole)
        self._index = Index(session.index_max_blocks)
        self._weights = weights_of(session.weights)
        self._ledger = Ledger()
        self._draws = Draws()
        self._ranks: dict[int, Followed] = {}
        self._all: list[Followed] = []  # those that are gone, too
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
        followed = Followed(entry.rank, Rank(entry.worker, entry.number, view), self._differences)
        self._ranks[entry.rank] = followed
        self._all.append(followed)

    @_do.register
    def _gone(self, entry: entries.Gone) -> None:
        self._ranks.pop(entry.rank).rank.view.close()

    @_do.register
    def _inherited(self, entry: entries.Inherited) -> None:
        earlier = next((each for each in self._all if each.number == entry.rank), None)
        if earlier is not None:  # else it left before the record begins
            self._ranks[entry.by].rank.load = earlier.rank.load

    @_do.register
    def _followed(self, entry: OfRank) -> None:
        self._ranks[entry.rank].take(entry)

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
            self._differences.compare(f"{where}: rank", named(there.rank), named(again.rank))
        for name in ("cached_tokens", "predicted_tokens", "uncached_tokens"):
            self._differences.compare(f"{where}: {name}", getattr(entry, name), getattr(there, name))

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
            for name, value in msgspec.structs.asdict(followed.row()).items():
                if self.session.shared and name in _OF_OTHERS:
                    continue
                self._differences.compare(f"view of {followed.name}: {name}", getattr(row, name), value)

    @property
    def differences(self) -> list[Difference]:
        """The first of all differences."""
        return self._differences.first

    @property
    def different(self) -> int:
        """How many differences there are."""
        return self._differences.count

    @property
    def batches(self) -> int:
        """How many batches have come, live and replayed."""
        return sum(followed.batches for followed in self._all)

    @property
    def peaks(self) -> dict[int, int]:
        """The most blocks that a rank's view has ever held, by its number."""
        return {followed.number: followed.peak for followed in self._all if followed.peak}

    @property
    def evicted(self) -> int:
        """How many blocks were given up for want of room.

        Which ones is not settled by what was recorded: of those matched at one time, some go sooner.
        """
        return self._index.evicted

    def rows_now(self) -> list[entries.Row]:
        """Return what all views are now."""
        return [followed.row() for followed in self._ranks.values()]
