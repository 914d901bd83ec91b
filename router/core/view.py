"""What one rank holds, by tier, from its events.

A view holds nothing the engine has not said, and loses at once what the engine says is gone. The engine's
hashes are opaque: they serve only to find the block that a parent or a removal speaks of.

vLLM can hold several physical copies of one block and tells of each (0.32: three identical prompts
decoded at once store one hash three times, and remove it three times), so there a block is gone with its
last copy (`counts_copies`). SGLang's radix tree holds one node per content, so there a store of a known
block changes nothing and one removal ends it.
"""

from __future__ import annotations

from collections import Counter

from router.core.blocks import Namespace, block_keys, namespace_root
from router.core.index import Index, strike
from router.core.orphans import Orphans
from router.core.predicted import Predicted
from router.core.wire import Batch, Cleared, Event, Hash, Removed, Stored

# Only full attention says that a prefix is usable; sliding windows and Mamba groups do not (vLLM 0.32).
_PREFIX_KINDS = frozenset({None, "full_attention", "mla_attention", "sink_full_attention"})
MAX_TIERS = 8


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
    ) -> None:
        """`block_size` in tokens, None until an event tells; `predicted_ttl` in seconds, bounds in blocks."""
        self.model = model
        self.block_size = block_size
        self.bigram = bigram
        self.counts_copies = counts_copies
        self._index = index
        self.slot = index.take_slot()
        self.predicted = Predicted(index, self.slot, ttl=predicted_ttl, bound=predicted_bound)
        self._held: dict[str, dict[Hash, int]] = {}
        self._copies: dict[tuple[str, Hash], int] = {}
        self._group: int | None = None
        self.orphans = Orphans(orphan_bound)
        self.resets: Counter[str] = Counter()
        self.events: Counter[str] = Counter()

    def blocks(self) -> dict[str, int]:
        """Return the number of blocks held, by tier."""
        return {tier: len(held) for tier, held in self._held.items()}

    def apply(self, batch: Batch) -> None:
        """Apply a batch's events in order. About 0.5 us a block."""
        self.events["undecodable"] += batch.undecodable
        for event in batch.events:
            self.apply_event(event)

    def apply_event(self, event: Event) -> None:
        """Apply one event."""
        if type(event) is Stored:
            self._store(event)
        elif type(event) is Removed:
            self._remove(event)
        elif type(event) is Cleared:
            self.events["cleared"] += 1
            self.reset("all_blocks_cleared")

    def reset(self, cause: str) -> None:
        """Forget every block of every tier, predicted ones too, in O(1); the cause is counted."""
        self.resets[cause] += 1
        old_slot, self.slot = self.slot, self._index.take_slot()
        self._retire(old_slot)
        self._held = {}
        self._copies = {}
        self.orphans.clear()

    def close(self) -> None:
        """Give the slot back; the view must not be used any more."""
        self._retire(self.slot)

    def _retire(self, slot: int) -> None:
        marks = [(self._index.masks(tier), iter(held.values())) for tier, held in self._held.items()]
        marks.append((self._index.predicted, self.predicted.surrender(self.slot)))
        self._index.retire(slot, marks)

    def _store(self, event: Stored) -> None:
        self.events["stored"] += 1
        if not self._takes(event):
            return
        start = self._key_before(event)
        if start is None:
            self.events["orphaned"] += 1
            self.orphans.keep(event)
            return
        waiting = [(event, start)]
        while waiting:
            run, start = waiting.pop()
            self._hold(run, start)
            for child in self.orphans.claim(run.hashes):
                after = self._key_before(child)
                if after is not None:
                    waiting.append((child, after))

    def _takes(self, event: Stored) -> bool:
        """Say whether a store can be part of this view; what cannot is counted by its reason."""
        if event.kind not in _PREFIX_KINDS or (self._group is not None and event.group != self._group):
            self.events["skipped_group"] += 1
            return False
        if not event.tokens and event.hashes:
            self._lift(event)
            return False
        if not event.aligned:
            self.events["skipped_misaligned"] += 1
            return False
        if event.tier not in self._held and len(self._held) >= MAX_TIERS:
            self.events["skipped_tier"] += 1
            return False
        self._group = event.group
        return True

    def _key_before(self, event: Stored) -> int | None:
        """Return the key that an event's first block is chained to, None when its parent is not known."""
        if event.parent is None:
            namespace = Namespace(self.model, event.lora, event.cache_salt)
            return namespace_root(namespace, event.block_size, bigram=event.bigram)
        return self._known(event.parent)

    def _known(self, block: Hash) -> int | None:
        for held in self._held.values():
            key = held.get(block)
            if key is not None:
                return key
        return None

    def _hold(self, event: Stored, start: int) -> None:
        self.block_size, self.bigram = event.block_size, event.bigram
        keys = block_keys(event.tokens, event.block_size, start, bigram=event.bigram, extras=event.extras)
        held = self._held.setdefault(event.tier, {})
        masks, bit = self._index.masks(event.tier), 1 << self.slot
        for block, key in zip(event.hashes, keys, strict=True):
            known = held.get(block)
            if known == key:
                self._count_copy(event.tier, block)
                continue
            if known is not None:
                strike(masks, known, bit)
            held[block] = key
            masks[key] = masks.get(key, 0) | bit
        if self.predicted:
            for key in keys:
                self.predicted.settle(key)

    def _lift(self, event: Stored) -> None:
        """Attach a tier to known blocks: offload connectors store hashes without tokens (vLLM 0.32)."""
        for block in event.hashes:
            key = self._known(block)
            if key is None or (event.tier not in self._held and len(self._held) >= MAX_TIERS):
                self.events["skipped_placeholder"] += 1
                continue
            self._held.setdefault(event.tier, {})[block] = key
            masks = self._index.masks(event.tier)
            masks[key] = masks.get(key, 0) | (1 << self.slot)

    def _count_copy(self, tier: str, block: Hash) -> None:
        if self.counts_copies:
            self._copies[tier, block] = self._copies.get((tier, block), 0) + 1

    def _remove(self, event: Removed) -> None:
        self.events["removed"] += 1
        if self._group is not None and event.group != self._group:
            self.events["skipped_group"] += 1
            return
        self.orphans.drop(event.hashes, event.tier)
        held = self._held.get(event.tier)
        if held is None:
            return
        masks, bit = self._index.masks(event.tier), 1 << self.slot
        for block in event.hashes:
            if self._copies and self._drop_copy(event.tier, block):
                continue
            key = held.pop(block, None)
            if key is not None:
                strike(masks, key, bit)
                self.predicted.settle(key)

    def _drop_copy(self, tier: str, block: Hash) -> bool:
        """Take one of several copies away; say whether there was more than one."""
        more = self._copies.pop((tier, block), 0)
        if more > 1:
            self._copies[tier, block] = more - 1
        return more > 0
