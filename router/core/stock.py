"""What a rank has said that it holds since its view was last emptied.

vLLM can hold several physical copies of one block and tells of each (0.32: three identical prompts
decoded at once store one hash three times, and remove it three times), so there a block is gone with its
last copy (`counts_copies`). SGLang's radix tree holds one node per content, so there a store of a known
block changes nothing and one removal ends it. A store that begins at the root with a block long known is
no new copy: prefix hits store nothing, so it is a report of what is there (`kv_cache_report_mode: full`).
"""

from __future__ import annotations

from enum import Enum
from itertools import chain
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest as digest

from router.core.blocks import TOKEN_BYTES, Namespace, block_keys, namespace_root
from router.core.ends import Ends
from router.core.packed import fingerprint
from router.core.places import Places
from router.core.reports import Reports
from router.core.states import NOBODY
from router.core.tree import ROOT

if TYPE_CHECKING:
    from array import array
    from collections import Counter
    from collections.abc import Sequence

    from router.core.events import Removed, Stored
    from router.core.index import Index
    from router.core.names import Names
    from router.core.pieces import Doubt
    from router.core.predicted import Predicted
    from router.core.rooms import Run


class Came(Enum):
    """What became of a store; CONFLICT: other ranks use its hashes for other content."""

    HELD = 0
    SKIPPED = 1
    ORPHANED = 2
    CONFLICT = 3


class Stock:
    """The blocks of one slot; `names` and `predicted` are the view's.

    `held`: how many blocks, by plane, of which 0 is the device. `stores`: how many have been held.
    """

    def __init__(
        self,
        index: Index,
        slot: int,
        model: str,
        names: Names,
        predicted: Predicted,
        events: Counter[str],
        *,
        counts_copies: bool,
    ) -> None:
        """`events` counts what is skipped, and why."""
        self.ts, self.stores = 0.0, 0
        self._index, self._tree, self._states = index, index.tree, index.states
        self._slot = slot
        self._model = model
        self._names = names
        self._predicted = predicted
        self._events = events
        self._counts_copies = counts_copies
        self._holder = index.holders[slot]
        self.held = self._holder.blocks
        self._places = Places(index.states, self._holder.bit)
        self._planes = self._places.known
        self._reports = Reports()
        self._ends = Ends(index.tree, self._holder, names)

    @property
    def untouched(self) -> bool:
        """Whether no event has left anything here."""
        return not self._places.tiers

    def blocks(self) -> dict[str, int]:
        """Return the number of blocks held, by tier."""
        return {tier: self.held[plane] for tier, plane in self._places.tiers.items()}

    def extend(self, event: Stored) -> bool:
        """Hold blocks that go on where another store has ended, if that is all that there is to this one.

        By far the most are so. Returns False when `store` has to see to it. About 2.5 us, and 1 us a block.
        """
        plane, blocks = self._planes.get((event.tier, event.group, event.kind)), len(event.hashes)
        size = TOKEN_BYTES * (blocks * event.block_size + event.bigram)
        if plane is None or not blocks or len(event.tokens) != size:
            return False
        if event.parent is None or event.lora is not None or event.extras is not None:
            return False
        at = self._ends.take(event.parent)
        if at is None:
            return False
        row, key = at
        if not self._tree.children[row]:
            held = self._append(event, plane, row, key)
        else:
            held = blocks == 1 and self._join(event, plane, row, key)
        if not held:
            self._ends.note(event.parent, row, key)  # `store` is to find it again
        return held

    def _append(self, event: Stored, plane: int, row: int, key: int) -> bool:
        """Hold blocks that are in no view yet, behind a row without children."""
        hashes, tokens = event.hashes, event.tokens
        if len(hashes) == 1:
            keys: Sequence[int] = (digest(tokens, key),)
        else:
            keys = block_keys(tokens, event.block_size, key, bigram=event.bigram)
        first = self._tree.extend(keys, row, self._states.alone(plane, self._slot), self._index.stamp)
        if not first:
            return False
        self.held[plane] += len(keys)
        agree = self._names.note_new(hashes, first, keys)
        if agree:
            self._settle(event, first + len(keys) - 1, keys)
        return agree

    def _join(self, event: Stored, plane: int, row: int, key: int) -> bool:
        """Hold a block that others hold and this slot does not, below a row that has children."""
        tree, key = self._tree, digest(event.tokens, key)
        known = row + 1 if tree.keys[row + 1] == key else tree.head(key)
        state = tree.states[known]
        held = self._states.add(state, plane, self._holder.bit)
        if not known or held == state or tree.blocks > tree.bound:
            return False
        if not self._names.note_known(event.hashes[0], known, key):
            return False
        tree.states[known] = held
        self.held[plane] += 1
        self._settle(event, known, (key,))
        return True

    def _settle(self, event: Stored, end: int, keys: Sequence[int]) -> None:
        """Note what follows from it that blocks are held, of which the last is that of row `end`."""
        if self._predicted:
            self._predicted.settle_all(keys)
        self._ends.note(event.hashes[-1], end, keys[-1])
        self.stores += 1

    def store(self, event: Stored) -> Came:
        """Hold a store's blocks; say what became of it."""
        plane = self._planes.get((event.tier, event.group, event.kind))
        if plane is None or not event.tokens or not event.aligned:
            plane = self._plane(event)
            if plane is None:
                return Came.SKIPPED
        start = self._before(event)
        if start is None:
            return Came.ORPHANED
        return self._hold(event, plane, *start)

    def _plane(self, event: Stored) -> int | None:
        """Return where a store belongs, None when it cannot be part of this view, counted by its reason."""
        group = self._places.group(event)
        if group is None:
            self._events["skipped_group"] += 1
        elif not event.tokens and event.hashes:
            self._lift(event, group)
        elif not event.aligned:
            self._events["skipped_misaligned"] += 1
        elif self._places.is_one_too_many(event.tier):
            self._events["skipped_tier"] += 1
        else:
            return self._places.open(event, group)
        return None

    def _before(self, event: Stored) -> Run | None:
        """Return row and key that an event's first block follows, None when its parent is not known."""
        if event.parent is not None:
            return self._ends.take(event.parent)
        namespace = Namespace(self._model, event.lora, event.cache_salt)
        return ROOT, namespace_root(namespace, event.block_size, bigram=event.bigram)

    def _hold(self, event: Stored, plane: int, row: int, key: int) -> Came:
        """Hold blocks of which any may be known."""
        keys = block_keys(event.tokens, event.block_size, key, bigram=event.bigram, extras=event.extras)
        if len(keys) != len(event.hashes):
            self._events["skipped_misaligned"] += 1
            return Came.SKIPPED
        tree = self._index.tree
        runs = tree.locate(keys, row) if not row or tree.children[row] else []
        known = sum([length for _, length in runs]) if runs else 0
        if len(keys) - known > self._index.room():
            # The blocks before these may be among those that are given up for them.
            self._index.make_room(len(keys) - known)
            return self.store(event)
        counts = self._counts_again(event, runs, plane)
        fresh = self._grow(keys, known, runs, row, plane) if known < len(keys) else []
        if not self._names.note(event, keys, runs + fresh, known):
            return Came.CONFLICT
        last, length = (fresh or runs)[-1]
        self._settle(event, last + length - 1, keys)
        for first, length in runs:
            self._holder.mark(first, length, plane, counts=counts)
        return Came.HELD

    def _grow(self, keys: array[int], known: int, runs: list[Run], row: int, plane: int) -> list[Run]:
        """Hold the blocks of a chain that are in no view yet, behind the known ones; return their runs."""
        after = runs[-1][0] + runs[-1][1] - 1 if runs else row
        state = self._index.states.alone(plane, self._slot)
        self.held[plane] += len(keys) - known
        return self._index.tree.grow(keys[known:] if known else keys, after, state, self._index.stamp)

    def _counts_again(self, event: Stored, runs: list[Run], plane: int) -> bool:
        """Say whether a block that is held and stored again is one more copy."""
        if not self._counts_copies or event.parent is not None:
            return self._counts_copies
        tree, states = self._index.tree, self._index.states
        is_held = bool(runs) and states.holds(tree.states[runs[0][0]], plane, self._holder.bit)
        return self._reports.is_copy(event.hashes[0], self.ts, is_held=is_held)

    def _lift(self, event: Stored, group: int) -> None:
        """Attach a tier to known blocks: offload connectors store hashes without tokens (vLLM 0.32)."""
        for block in event.hashes:
            row = self._names.row(fingerprint(block))
            if not row or self._places.is_one_too_many(event.tier) or not self._holder.holds(row):
                self._events["skipped_placeholder"] += 1
                continue
            self._holder.mark(row, 1, self._places.open(event, group), counts=False)

    def remove(self, event: Removed) -> None:
        """Hold blocks no more in one tier; what is not held there is no matter."""
        if self._places.skips(event.group):
            self._events["skipped_group"] += 1
            return
        plane = self._places.plane(event.tier, event.group)
        if plane is None:
            return
        self._index.evicting |= self._holder.bit
        for block in event.hashes:
            name = fingerprint(block)
            row = self._names.row(name)
            if row:
                self._unmark(row, plane, name)
        if self._index.tree.loose:
            self._index.rouse()

    def _unmark(self, row: int, plane: int, name: int) -> None:
        """Note that the rank holds a block in one plane no more; with its last holder its name goes."""
        left = self._holder.unmark(row, plane)
        if left is None:
            return
        if self._predicted:
            self._predicted.settle(self._index.tree.keys[row])
        if not self._holder.holds(row):
            self._names.drop_own(name)
        if left == NOBODY:
            self._names.drop_shared(name, row)
            self._index.tree.release(row)

    def doubt(self, doubt: Doubt) -> None:
        """Hold none of the blocks in doubt, those nearest to the end first."""
        runs = self._index.tree.locate(doubt.keys, ROOT)
        rows = list(chain.from_iterable(range(row, row + length) for row, length in runs))
        for row in reversed(rows[doubt.start :]):
            if self._holder.drop(row):
                self._events["contradicted"] += 1
