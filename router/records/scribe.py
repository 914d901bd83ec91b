"""From what the loop has handed over to what is written; runs in the writer's thread.

It remembers what a part must begin with so that it can be read without the parts before it: the ranks that
there are. Sets of candidates are written once a part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from router.records import entries
from router.records.items import RawChosen, RawLive, RawReplayed
from router.records.seal import prompt_blocks, sealed
from router.records.taps import RecordedView

if TYPE_CHECKING:
    from router.core.lineup import Lineup
    from router.core.rank import Rank
    from router.records.codes import Codes
    from router.records.entries import Entry
    from router.records.items import Item

_ID_CHARACTERS = 64
_MOST_LINEUPS = 64
Sizes = set[tuple[int, bool]]


class Scribe:
    """`session` is its first entry, to be written anew, with its number, at the head of each part."""

    def __init__(self, session: entries.Session, codes: Codes) -> None:
        self._session = session
        self._codes = codes
        self._ranks: dict[int, list[Entry]] = {}
        self._sets: dict[tuple[int, ...], int] = {}
        self._lineups: dict[int, tuple[Lineup, int]] = {}
        self._sizes: dict[int, Sizes] = {}

    def head(self, part: int) -> list[Entry]:
        """Return what a part begins with."""
        self._sets.clear()
        self._lineups.clear()
        ranks = [entry for known in self._ranks.values() for entry in known]
        return [msgspec.structs.replace(self._session, part=part), *ranks]

    def written(self, item: Item) -> list[Entry]:
        """Return the entries of an item."""
        if isinstance(item, RawLive):
            batch = sealed(item.batch, self._codes)
            return [entries.Live(item.now, item.rank, item.seq, item.size, item.at_once, batch)]
        if isinstance(item, RawReplayed):
            return [entries.Replayed(item.now, item.rank, item.seq, sealed(item.batch, self._codes))]
        if isinstance(item, RawChosen):
            return self._chosen(item)
        self._note(item)
        return [item]

    def _note(self, item: Entry) -> None:
        if isinstance(item, entries.Ranked):
            self._ranks[item.rank] = [item]
        elif isinstance(item, entries.Opened):
            self._ranks[item.rank][1:] = [item]
        elif isinstance(item, entries.Gone):
            self._ranks.pop(item.rank, None)
        elif isinstance(item, entries.Weighed):
            self._session = msgspec.structs.replace(self._session, weights=item.weights)
        elif isinstance(item, entries.Ended):
            self._sizes.pop(item.request, None)

    def _chosen(self, item: RawChosen) -> list[Entry]:
        made: list[Entry] = []
        among = self._set(item.facts.lineup, made)
        self._prompt(item, made)
        chosen = item.chosen
        made.append(
            entries.Chosen(
                item.now,
                item.request,
                item.policy,
                among,
                number_of(chosen.rank),
                chosen.cached_tokens,
                chosen.predicted_tokens,
                chosen.uncached_tokens,
                item.draws,
            )
        )
        return made

    def _set(self, lineup: Lineup, made: list[Entry]) -> int:
        """Return the number of a set of candidates, which is written when it is new."""
        known = self._lineups.get(id(lineup))
        if known is not None and known[0] is lineup:
            return known[1]
        ranks = tuple(map(number_of, lineup.ranks))
        number = self._sets.get(ranks)
        if number is None:
            number = self._sets[ranks] = len(self._sets)
            made.append(entries.Ranks(number, list(ranks)))
        if len(self._lineups) >= _MOST_LINEUPS:
            self._lineups.clear()
        self._lineups[id(lineup)] = lineup, number
        return number

    def _prompt(self, item: RawChosen, made: list[Entry]) -> None:
        """Write the prompt, as blocks of every size that the candidates have and that is new to it."""
        plan, known = item.plan, self._sizes.get(item.request)
        groups = item.facts.lineup.groups if plan.prompt.tokens else ()
        sizes = {(group.block_size, group.bigram) for group in groups}
        if known is not None and sizes <= known:
            return
        self._sizes[item.request] = sizes | (known or set())
        prompt, space, session = plan.prompt, plan.prompt.namespace, plan.wish.session
        made.append(
            entries.Prompt(
                item.now,
                item.request,
                item.id[:_ID_CHARACTERS].decode("latin-1"),
                item.path,
                space.model,
                space.lora,
                self._codes.salt(space.cache_salt),
                space.text,
                prompt.count,
                plan.exact,
                prompt.reusable,
                prompt.reads_cache,
                prompt_blocks(prompt, sorted(sizes - (known or set())), self._codes),
                self._codes.salt(session.decode("latin-1")) if session is not None else None,
            )
        )


def number_of(rank: Rank) -> int:
    """Return the number that a rank has in the record."""
    view = rank.view
    assert isinstance(view, RecordedView)  # noqa: S101 - the fleet's views are made by the recorder
    return view.tap.rank
