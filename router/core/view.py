"""What one rank holds, by tier, from its events.

A view holds nothing the engine has not said, and loses at once what the engine says is gone. The engine's
hashes are opaque: they serve only to find the block that a parent or a removal speaks of.

vLLM can hold several physical copies of one block and tells of each (0.32: three identical prompts
decoded at once store one hash three times, and remove it three times), so there a block is gone with its
last copy (`counts_copies`). SGLang's radix tree holds one node per content, so there a store of a known
block changes nothing and one removal ends it. A store that begins at the root with a block long known is
no new copy: prefix hits store nothing, so it is a report of what is there (`kv_cache_report_mode: full`).

An event of many blocks is applied in pieces: the first at once, the rest when the index is swept, so that
no event holds up the loop; what comes after it waits for it, but a clear never does.
"""

from __future__ import annotations

from collections import Counter, deque
from itertools import chain
from typing import TYPE_CHECKING

from xxhash import xxh3_64_intdigest

from router.core.blocks import Namespace, block_keys, namespace_root
from router.core.events import Batch, Cleared, Hash, Removed, Stored
from router.core.index import as_keys
from router.core.names import Names
from router.core.orphans import Orphans
from router.core.packed import fingerprint
from router.core.pieces import PIECE_BLOCKS, Doubt, Piece, doubts, pieces
from router.core.places import Places
from router.core.predicted import Predicted
from router.core.reports import Reports
from router.core.states import NOBODY
from router.core.tree import ROOT

if TYPE_CHECKING:
    from array import array
    from collections.abc import Callable, Iterable

    from router.core.index import Index
    from router.core.rooms import Run

# Blocks applied at once; about 1 ms.
_AT_ONCE = 1024
_MOST_ENDS = 1024


class View:
    """One rank's blocks. `model` is the base model's served name, the first part of every namespace."""

    def __init__(
        self,
        index: Index,
        model: str,
        *,
        block_size: int | None,
        bigram: bool = False,
        counts_copies: bool = False,
        predicted_ttl: float = 30.0,
        predicted_bound: int = 65_536,
        orphan_bound: int = 65_536,
        on_reset: Callable[[str], object] | None = None,
    ) -> None:
        """`block_size` in tokens, None until an event tells; `predicted_ttl` in seconds, bounds in blocks.

        `on_reset` is told the cause of each reset.
        """
        self.model = model
        self.block_size = block_size
        self.bigram = bigram
        self.counts_copies = counts_copies
        self._index = index
        self._on_reset = on_reset
        self.slot = index.take_slot()
        self.predicted = Predicted(index, self.slot, ttl=predicted_ttl, bound=predicted_bound)
        self.orphans = Orphans(orphan_bound)
        self.resets: Counter[str] = Counter()
        self.events: Counter[str] = Counter()
        self._names = Names(
            index.tree,
            None if counts_copies else index.names(model),
            forget=self._forget,
            is_held=index.is_held,
        )
        self._begin()

    def _begin(self) -> None:
        self._holder = self._index.holders[self.slot]
        self._places = Places(self._index.states, self._holder.bit)
        self._reports = Reports()
        # Row and key of blocks that were stored last: most stores follow one of them.
        self._ends: dict[Hash, Run] = {}
        self._waiting: deque[Piece] = deque()
        self._is_queued = False
        self._ts = 0.0
        self.orphans.clear()

    def blocks(self) -> dict[str, int]:
        """Return the number of blocks held, by tier."""
        return {tier: self._holder.blocks.get(plane, 0) for tier, plane in self._places.tiers.items()}

    def size(self) -> int:
        """Return about how much the rank holds on its device, in tokens, with what is predicted."""
        return (self._holder.blocks.get(0, 0) + len(self.predicted)) * (self.block_size or 1)

    def apply(self, batch: Batch) -> None:
        """Apply a batch's events in order. About 1 us a block."""
        if batch.undecodable:
            self.events["undecodable"] += batch.undecodable
        self._ts = batch.ts
        left = _AT_ONCE
        for event in batch.events:
            if isinstance(event, Cleared):
                self.events["cleared"] += 1
                self.reset("all_blocks_cleared")
                continue
            self.events["stored" if type(event) is Stored else "removed"] += 1
            size = len(event.hashes)
            if size <= PIECE_BLOCKS and left > 0 and not self._waiting:
                self._apply(event)
                left -= size
            else:
                self._waiting.extend(pieces(event))
        if self._waiting:
            self._continue(left)

    @property
    def busy(self) -> bool:
        """Whether parts of large events still wait to be applied, which the index's sweep goes on with."""
        return bool(self._waiting)

    def work(self, blocks: int) -> bool:
        """Go on with what waits, about so many blocks; say whether anything is left."""
        while self._waiting and blocks > 0:
            event = self._waiting.popleft()
            blocks -= len(event.hashes)
            self._apply(event)
        self._is_queued = bool(self._waiting)
        return self._is_queued

    def _continue(self, blocks: int) -> None:
        if not self._is_queued and self.work(blocks):
            self._index.wait_for(self)

    def _apply(self, event: Piece) -> None:
        if isinstance(event, Stored):
            self._store(event)
        elif isinstance(event, Removed):
            self._remove(event)
        else:
            self._doubt(event)

    def reset(self, cause: str) -> None:
        """Forget every block of every tier, predicted ones too, in O(1); the cause is counted."""
        self.resets[cause] += 1
        if self._on_reset is not None:
            self._on_reset(cause)
        old_slot, self.slot = self.slot, self._index.take_slot()
        self._retire(old_slot)
        self._begin()

    def close(self) -> None:
        """Give the slot back; the view must not be used any more."""
        self._retire(self.slot)
        self._waiting.clear()

    def _retire(self, slot: int) -> None:
        self._index.retire(slot, self.predicted.surrender(self.slot), self._names.surrender())

    def _store(self, event: Stored) -> None:
        plane = self._places.of(event)
        if plane is None or not event.tokens or not event.aligned:
            plane = self._plane(event)
            if plane is None:
                return
        start = self._before(event)
        if start is None:
            self.events["orphaned"] += 1
            self.orphans.keep(event)
            return
        if not self._extend(event, plane, *start):
            self._hold(event, plane, *start)
        children = self.orphans.claim(event.hashes) if self.orphans.blocks else None
        if children:
            self._waiting.extendleft(reversed([piece for child in children for piece in pieces(child)]))

    def _plane(self, event: Stored) -> int | None:
        """Return where a store belongs, None when it cannot be part of this view, counted by its reason."""
        group = self._places.group(event)
        if group is None:
            self.events["skipped_group"] += 1
        elif not event.tokens and event.hashes:
            self._lift(event, group)
        elif not event.aligned:
            self.events["skipped_misaligned"] += 1
        elif self._places.is_one_too_many(event.tier):
            self.events["skipped_tier"] += 1
        else:
            return self._places.open(event, group)
        return None

    def _before(self, event: Stored) -> Run | None:
        """Return row and key that an event's first block follows, None when its parent is not known."""
        if event.parent is None:
            namespace = Namespace(self.model, event.lora, event.cache_salt)
            return ROOT, namespace_root(namespace, event.block_size, bigram=event.bigram)
        end = self._ends.pop(event.parent, None)
        if end is not None and self._index.tree.keys[end[0]] == end[1] and self._holder.holds(end[0]):
            return end
        row = self._names.row(fingerprint(event.parent))
        if row and self._holder.holds(row):
            return row, self._index.tree.keys[row]
        return None

    def _extend(self, event: Stored, plane: int, row: int, key: int) -> bool:
        """Hold new blocks behind an end of the tree, or one block anywhere: the common cases.

        Says whether it was one of them.
        """
        tree, blocks = self._index.tree, len(event.hashes)
        if not row or event.extras or self.predicted or tree.blocks + blocks > tree.bound:
            return False
        if blocks == 1:
            return self._add_one(event, plane, row, xxh3_64_intdigest(event.tokens, key))
        if tree.children[row] or not tree.has_room(row, blocks):
            return False
        keys = block_keys(event.tokens, event.block_size, key, bigram=event.bigram)
        first = tree.extend(keys, row, self._index.states.alone(plane, self.slot), self._index.stamp)
        self._holder.gain(plane, blocks)
        self._conclude(event, first + blocks - 1, keys[-1], agrees=self._names.note_new(event, first, keys))
        return True

    def _add_one(self, event: Stored, plane: int, row: int, key: int) -> bool:
        """Hold one block below a row, if it is in no view yet or in that of others only."""
        tree, states = self._index.tree, self._index.states
        known = tree.child(row, key) if tree.children[row] else 0
        if not known:
            new = tree.append(key, row, states.alone(plane, self.slot), self._index.stamp)
            agrees = self._names.note_one(event, new, key)
        else:
            state, new = tree.states[known], known
            held = states.add(state, plane, self._holder.bit)
            if held == state or not self._names.note_known(event, known, key):
                return False
            tree.states[known], agrees = held, True
        self._holder.gain(plane, 1)
        self._conclude(event, new, key, agrees=agrees)
        return True

    def _conclude(self, event: Stored, row: int, key: int, *, agrees: bool) -> None:
        """Note what a store has told; `agrees`: its hashes mean what they mean to other ranks."""
        if event.block_size != self.block_size or event.bigram is not self.bigram:
            self._measure(event)
        if agrees:
            self._note_end(event.hashes[-1], row, key)
        else:
            self._leave(event)

    def _measure(self, event: Stored) -> None:
        """Take the block size that an event shows."""
        self.block_size, self.bigram = event.block_size, event.bigram
        self._index.lineups.clear()

    def _note_end(self, block: Hash, row: int, key: int) -> None:
        """Keep where the next store probably goes on."""
        if len(self._ends) >= _MOST_ENDS:
            self._ends.clear()
        self._ends[block] = row, key

    def _hold(self, event: Stored, plane: int, row: int, key: int) -> None:
        if event.block_size != self.block_size or event.bigram is not self.bigram:
            self._measure(event)
        keys = block_keys(event.tokens, event.block_size, key, bigram=event.bigram, extras=event.extras)
        if len(keys) != len(event.hashes):
            self.events["skipped_misaligned"] += 1
            return
        tree = self._index.tree
        runs = tree.locate(keys, row) if not row or tree.children[row] else []
        known = sum([length for _, length in runs]) if runs else 0
        if len(keys) - known > self._index.room():
            self._index.make_room(len(keys) - known)
            self._apply(event)
            return
        counts = self._counts_again(event, runs, plane)
        fresh = self._grow(keys, known, runs, row, plane) if known < len(keys) else []
        if not self._names.note(event, keys, runs + fresh, known):
            self._leave(event)
            return
        if keys:
            last, length = (fresh or runs)[-1]
            self._note_end(event.hashes[-1], last + length - 1, keys[-1])
        for first, length in runs:
            self._holder.mark(first, length, plane, counts=counts)
        if self.predicted:
            self.predicted.settle_all(keys)

    def _grow(self, keys: array[int], known: int, runs: list[Run], row: int, plane: int) -> list[Run]:
        """Hold the blocks of a chain that are in no view yet, behind the known ones; return their runs."""
        after = runs[-1][0] + runs[-1][1] - 1 if runs else row
        state = self._index.states.alone(plane, self.slot)
        self._holder.gain(plane, len(keys) - known)
        return self._index.tree.grow(keys[known:] if known else keys, after, state, self._index.stamp)

    def _counts_again(self, event: Stored, runs: list[Run], plane: int) -> bool:
        """Say whether a block that is held and stored again is one more copy."""
        if not self.counts_copies or event.parent is not None:
            return self.counts_copies
        tree, states = self._index.tree, self._index.states
        is_held = bool(runs) and states.holds(tree.states[runs[0][0]], plane, self._holder.bit)
        return self._reports.is_copy(event.hashes[0], self._ts, is_held=is_held)

    def _leave(self, event: Stored) -> None:
        """Begin anew with a table of hashes of its own."""
        waiting, queued = self._waiting, self._is_queued
        self.reset("hash_conflict")
        self._waiting, self._is_queued = waiting, queued
        self._names.leave()
        self._apply(event)

    def _lift(self, event: Stored, group: int) -> None:
        """Attach a tier to known blocks: offload connectors store hashes without tokens (vLLM 0.32)."""
        for block in event.hashes:
            row = self._names.row(fingerprint(block))
            if not row or self._places.is_one_too_many(event.tier) or not self._holder.holds(row):
                self.events["skipped_placeholder"] += 1
                continue
            self._holder.mark(row, 1, self._places.open(event, group), counts=False)

    def _remove(self, event: Removed) -> None:
        if self._places.skips(event.group):
            self.events["skipped_group"] += 1
            return
        self.orphans.drop(event.hashes, event.tier)
        plane = self._places.plane(event.tier, event.group)
        if plane is None:
            return
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
        tree = self._index.tree
        if self.predicted:
            self.predicted.settle(tree.keys[row])
        if not self._holder.holds(row):
            self._names.drop_own(name)
        if left == NOBODY:
            self._names.drop_shared(name, row)
            tree.release(row)

    def _forget(self, row: int) -> None:
        self._holder.drop(row)

    def contradict(self, keys: Iterable[int], held_blocks: int) -> None:
        """Drop what is claimed of a prompt beyond the blocks that the engine says it found.

        `keys` are those of the whole prompt (PromptBlocks.keys), `held_blocks` the engine's `cached_tokens`
        in blocks. Predictions beyond go too. Counted in `events["contradicted"]`, in blocks. About 1.5 us a
        block; of long prompts the first blocks go at once, the rest when the index is swept.
        """
        chained = as_keys(keys)
        if self.predicted:
            self.predicted.settle_all(chained[held_blocks:])
        pieces_of_doubt = doubts(chained, held_blocks)
        first = next(pieces_of_doubt, None)
        if first is not None:
            self._doubt(first)
        self._waiting.extend(pieces_of_doubt)
        if self._waiting:
            self._continue(0)

    def _doubt(self, doubt: Doubt) -> None:
        runs = self._index.tree.locate(doubt.keys, ROOT)
        rows = list(chain.from_iterable(range(row, row + length) for row, length in runs))
        for row in reversed(rows[doubt.start :]):
            if self._holder.drop(row):
                self.events["contradicted"] += 1
