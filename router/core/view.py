"""What one rank holds, by tier, from its events.

A view holds nothing the engine has not said, and loses at once what the engine says is gone. The engine's
hashes are opaque: they serve only to find the block that a parent or a removal speaks of.

An event of many blocks is applied in pieces: the first at once, the rest when the index is swept, so that
no event holds up the loop; what comes after it waits for it, but a clear never does.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from router.core.backlog import Backlog
from router.core.events import Batch, Cleared, Event, Removed, Stored
from router.core.index import as_keys
from router.core.names import Names
from router.core.orphans import Orphans
from router.core.pieces import PIECE_BLOCKS, Piece, doubts
from router.core.predicted import Predicted
from router.core.stock import Came, Stock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from router.core.index import Index

# Blocks applied at once; about 1 ms.
_AT_ONCE = 1024
_COUNTED = {Stored: "stored", Removed: "removed", Cleared: "cleared"}


class View:
    """One rank's blocks. `model` is the base model's served name, the first part of every namespace.

    `resets` counts by cause what has emptied it while it was looked at, `emptied` all of it.
    """

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
        on_loss: Callable[[], object] | None = None,
    ) -> None:
        """`block_size` in tokens, None until an event tells; `predicted_ttl` in seconds, bounds in blocks.

        `on_reset` is told the cause of each reset; `on_loss` is called when blocks had to be forgotten that
        the engine still holds.
        """
        self.model = model
        # Told the adapter of each store: whoever has sent the request, the rank has it loaded.
        self.on_adapter: Callable[[str], object] | None = None
        self.block_size = block_size
        self.bigram = bigram
        self.counts_copies = counts_copies
        self._index = index
        self._on_reset = on_reset
        self._on_loss = on_loss
        self.slot = index.take_slot()
        self.predicted = Predicted(index, self.slot, ttl=predicted_ttl, bound=predicted_bound)
        self.orphans = Orphans(orphan_bound)
        self.resets: Counter[str] = Counter()
        self.emptied = 0
        self.events: Counter[str] = Counter()
        self._names = Names(
            index.tree,
            None if counts_copies else index.names(model),
            forget=self._forget,
            is_held=index.is_held,
        )
        self._begin()

    def _begin(self) -> None:
        self._stock = Stock(
            self._index,
            self.slot,
            self.model,
            self._names,
            self.predicted,
            self.events,
            counts_copies=self.counts_copies,
        )
        self._backlog = Backlog()
        self._is_queued = False
        self.orphans.clear()

    def blocks(self) -> dict[str, int]:
        """Return the number of blocks held, by tier."""
        return self._stock.blocks()

    def size(self) -> int:
        """Return about how much the rank holds on its device, in tokens, with what is predicted. 0.15 us."""
        return (self._stock.held.get(0, 0) + len(self.predicted.until)) * (self.block_size or 1)

    def apply(self, batch: Batch, *, past: bool = False) -> None:
        """Apply a batch's events in order; a clear in a `past` one is not counted. About 1 us a block."""
        if batch.undecodable:
            self.events["undecodable"] += batch.undecodable
        events = self._since_clear(batch.events, past=past) if batch.clears else batch.events
        self._stock.ts = batch.ts
        left, waits, stores = _AT_ONCE, bool(self._backlog), 0
        for event in cast("list[Stored | Removed]", events):
            size = len(event.hashes)
            stores += type(event) is Stored
            if waits or left <= 0 or size > PIECE_BLOCKS:
                self._backlog.add(event)
                waits = True
                continue
            left -= size
            if type(event) is Stored:
                self._store(event)
            else:
                self._apply(event)
            waits = bool(self._backlog)
        if stores:
            self.events["stored"] += stores
        if len(events) > stores:
            self.events["removed"] += len(events) - stores
        if waits:
            self._continue(left)

    def _since_clear(self, events: Sequence[Event], *, past: bool) -> Sequence[Event]:
        """Forget everything; return what came after the last clear."""
        after = 1 + max(at for at, event in enumerate(events) if type(event) is Cleared)
        for event in events[:after]:
            self.events[_COUNTED[type(event)]] += 1
        self.reset("all_blocks_cleared", past=past)
        return events[after:]

    @property
    def busy(self) -> bool:
        """Whether parts of large events still wait to be applied, which the index's sweep goes on with."""
        return bool(self._backlog)

    def work(self, blocks: int) -> bool:
        """Go on with what waits, about so many blocks; say whether anything is left."""
        while blocks > 0 and (piece := self._backlog.take()) is not None:
            blocks -= len(piece.hashes)
            self._apply(piece)
        self._is_queued = bool(self._backlog)
        return self._is_queued

    def _continue(self, blocks: int) -> None:
        if not self._is_queued and self.work(blocks):
            self._index.wait_for(self)

    def _apply(self, event: Piece) -> None:
        if isinstance(event, Stored):
            self._store(event)
        elif isinstance(event, Removed):
            self.orphans.drop(event.hashes, event.tier)
            self._stock.remove(event)
        else:
            self._stock.doubt(event)

    def _store(self, event: Stored) -> None:
        as_before = event.block_size == self.block_size and event.bigram is self.bigram
        came = Came.HELD if as_before and self._stock.extend(event) else self._stock.store(event)
        if came is Came.HELD:
            if not as_before or event.lora is not None:
                self._learn(event)
            if self.orphans.blocks and (children := self.orphans.claim(event.hashes)):
                self._backlog.put_first(children)
        elif came is Came.ORPHANED:
            self.events["orphaned"] += 1
            self.orphans.keep(event)
        elif came is Came.CONFLICT:
            self._leave(event)

    def _learn(self, event: Stored) -> None:
        """Take the block size and the adapter that an event shows."""
        if event.lora is not None and self.on_adapter is not None:
            self.on_adapter(event.lora)
        if event.block_size != self.block_size or event.bigram is not self.bigram:
            self.block_size, self.bigram = event.block_size, event.bigram
            self._index.lineups.clear()

    def _leave(self, event: Stored) -> None:
        """Begin anew with a table of hashes of its own."""
        backlog, queued = self._backlog, self._is_queued
        if self._on_loss is not None and self._stock.stores:
            self._on_loss()
        self.reset("hash_conflict")
        self._backlog, self._is_queued = backlog, queued
        self._names.leave()
        self._store(event)

    def _forget(self, row: int) -> None:
        self._index.holders[self.slot].drop(row)

    def contradict(self, keys: Iterable[int], held_blocks: int) -> None:
        """Drop what is claimed of a prompt beyond the blocks that the engine says it found.

        `keys` are those of the whole prompt (PromptBlocks.keys), `held_blocks` the engine's `cached_tokens`
        in blocks. Predictions beyond go too. Counted in `events["contradicted"]`, in blocks. About 1.5 us a
        block; of long prompts the first blocks go at once, the rest when the index is swept.
        """
        chained = as_keys(keys)
        if self.predicted:
            self.predicted.settle_all(chained[held_blocks:])
        cut = doubts(chained, held_blocks)
        first = next(cut, None)
        if first is not None:
            self._stock.doubt(first)
        if len(chained) - held_blocks > PIECE_BLOCKS:
            self._backlog.add_all(cut)
            self._continue(0)

    def note_asked(self, prefix: int, now: float) -> None:
        """Somebody asks for a prefix that is known (`Crowds.note`)."""
        self._index.crowds.note(prefix, now)

    def reset(self, cause: str, *, past: bool = False) -> None:
        """Forget every block of every tier, predicted ones too, in O(1).

        The cause is counted and told, unless it is `past`: read in a history, long after it happened.
        """
        self.emptied += 1
        if not past:
            self.resets[cause] += 1
            if self._on_reset is not None:
                self._on_reset(cause)
        if self._stock.untouched and not self.predicted:
            # Nothing to sweep: an engine that clears again and again takes no slot after slot.
            self.predicted.surrender(self.slot)
        else:
            self._index.crowds.clear()
            old_slot, self.slot = self.slot, self._index.take_slot()
            self._retire(old_slot)
        self._begin()

    def close(self) -> None:
        """Give the slot back; the view must not be used any more."""
        self._retire(self.slot)
        self._backlog = Backlog()

    def _retire(self, slot: int) -> None:
        self._index.retire(slot, self.predicted.surrender(self.slot), self._names.surrender())
