"""All views together: which ranks hold a block, in which tier, and how far a prompt's prefix reaches.

The blocks of all ranks are one tree (`tree`), each with the set of its holders (`states`), so a prompt is
matched once for all ranks, run by run. A rank's view owns one bit of every set, its slot. A reset is O(1):
the view takes a fresh slot, the old one is struck from the mask of live slots at once, and what the tree
still says of it is swept away in small portions (`sweep`) before the slot is used again. Keys are chained,
so a key says all of its prefix; a rank whose parent block is gone simply stops matching there, and counts
again when the parent returns. Predicted blocks live apart, in one table of masks.
"""

from __future__ import annotations

from array import array
from collections import deque
from functools import lru_cache
from itertools import chain
from operator import sub
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

import msgspec

from router.core.eviction import Eviction
from router.core.holder import Holder
from router.core.packed import Packed
from router.core.states import NOBODY, States
from router.core.sweep import Sweep
from router.core.tree import ROOT, Run, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Masks: TypeAlias = dict[int, int]
Span: TypeAlias = tuple[int, int]

DEFAULT_MAX_BLOCKS = 1 << 24
_SHORT = 16
_STAMPS = 1 << 32
# Blocks that a view may add at once.
_PIECE = 512


class IndexSize(NamedTuple):
    """Distinct blocks kept over all ranks, their memory in bytes, and how many were given up so far."""

    blocks: int = 0
    bytes: int = 0
    evicted: int = 0


class Match(msgspec.Struct, gc=False):
    """How many blocks of a prompt's prefix each slot holds.

    `held`: blocks that the rank has said it holds. `reach`: the same with predicted ones. `lower`: of
    the held ones, those found only in a tier below the device, by tier. Slots that hold nothing are absent.
    """

    held: dict[int, int]
    reach: dict[int, int]
    lower: dict[str, dict[int, int]]


class Waiter(Protocol):
    """Somebody with events still to apply."""

    def work(self, blocks: int) -> bool:
        """Apply about so many blocks of them; say whether any are left."""


class Index:
    """The tree, the slots, and the work that is left for later.

    `max_blocks` bounds the distinct blocks kept, over all ranks; `evicted` counts those given up for it.
    `wake` is called whenever `sweep` has something to do.
    """

    def __init__(self, max_blocks: int = DEFAULT_MAX_BLOCKS, wake: Callable[[], None] | None = None) -> None:
        self.tree = Tree(max_blocks)
        self.states = States()
        self.predicted: Masks = {}
        self.holders: dict[int, Holder] = {}
        # Advanced by each match; below 2^32.
        self.stamp = 1
        self.wake = wake
        self._eviction = Eviction(self)
        self._sweep = Sweep(self)
        self._names: WeakValueDictionary[str, Packed] = WeakValueDictionary()
        self._live = 0
        self._free: list[int] = []
        self._next_slot = 0
        self._waiting: deque[Waiter] = deque()

    @property
    def blocks(self) -> int:
        """Distinct blocks kept."""
        return self.tree.blocks

    @property
    def evicted(self) -> int:
        """Blocks given up so far because there were more than `max_blocks`."""
        return self._eviction.evicted

    def size(self) -> IndexSize:
        """Return what there is to see of the index: distinct blocks, bytes, blocks given up so far."""
        return IndexSize(self.tree.blocks, self.nbytes(), self.evicted)

    def nbytes(self) -> int:
        """Return the memory of what is shared by all views, in bytes."""
        return self.tree.nbytes + sum(names.nbytes for names in self._names.values())

    def take_slot(self) -> int:
        """Return an unused slot, counted as live from now on."""
        if self._free:
            slot = self._free.pop()
        else:
            slot = self._next_slot
            self._next_slot += 1
        self._live |= 1 << slot
        self.holders[slot] = Holder(self.tree, self.states, slot)
        return slot

    def give_slot(self, slot: int) -> None:
        """Make a slot that nothing refers to any more free for use."""
        self.states.release_slot(1 << slot)
        self._free.append(slot)

    def is_held(self, row: int) -> bool:
        """Say whether any live slot holds a block, in any tier of any group."""
        return any(mask & self._live for mask in self.states.masks[self.tree.states[row]])

    def names(self, model: str) -> Packed:
        """Return the table of block hashes that the ranks of a model share."""
        names = self._names.get(model)
        if names is None:
            names = self._names[model] = Packed(self.tree.is_stale_shared_name)
        return names

    def shared_names(self) -> list[Packed]:
        """Return every table of shared block hashes."""
        return list(self._names.values())

    def retire(self, slot: int, predictions: dict[int, float], names: Packed | None) -> None:
        """Take a slot out of every later match, at once; what it leaves is swept later."""
        self._live &= ~(1 << slot)
        self._sweep.retire(slot, self.holders.pop(slot), predictions, names)
        self.rouse()

    def wait_for(self, waiter: Waiter) -> None:
        """Have `sweep` go on with somebody's events."""
        self._waiting.append(waiter)
        self.rouse()

    def rouse(self) -> None:
        """Say that there is work."""
        if self.wake is not None:
            self.wake()

    def sweep(self, portion: int) -> bool:
        """Do `portion` pieces of work left for later, of about 0.5 us each; say whether any is left."""
        if self._waiting:
            waiter = self._waiting.popleft()
            if waiter.work(portion // 2):
                self._waiting.append(waiter)
            return True
        return self._sweep.step(portion)

    def room(self) -> int:
        """Return how many more blocks fit; all do when there are none yet."""
        return self.tree.bound - self.tree.blocks if self.tree.blocks else self.tree.bound + _PIECE

    def make_room(self, blocks: int) -> None:
        """Give up the least recently matched blocks until so many more fit."""
        self._eviction.evict(blocks - self.room())

    def match(self, keys: Iterable[int]) -> Match:
        """Return how far each live slot holds the prefix `keys`.

        About 1 us, 1 us a run of blocks stored together, 1 us for each place where the holders change,
        and 5 ns a block.
        """
        chained = as_keys(keys)
        runs = self.tree.locate(chained, ROOT)
        self.stamp = (self.stamp + 1) % _STAMPS
        self.tree.touch(runs, self.stamp)
        found = Match({}, {}, {})
        spans = self._spans(runs)
        self._measure(spans, found)
        found.reach = self._reach(chained, spans) if self.predicted else found.held
        return found

    def _spans(self, runs: list[Run]) -> list[Span]:
        """Return the states along some rows, each with the number of blocks it lasts."""
        spans: list[Span] = []
        states = self.tree.states
        for row, length in runs:
            if length <= _SHORT:
                here = states[row : row + length].tolist()
                if here.count(here[0]) == length:
                    spans.append((here[0], length))
                else:
                    spans += [(state, 1) for state in here]
                continue
            words = self.tree.state_words[row : row + length]
            ends = (words[1:] != words[:-1]).nonzero()[0].tolist()
            last = states[row + length - 1]
            if ends:
                lengths = map(sub, ends, chain((-1,), ends))
                spans += zip(words[ends].tolist(), lengths, strict=False)
            spans.append((last, length - ends[-1] - 1 if ends else length))
        return spans

    def _measure(self, spans: list[Span], found: Match) -> None:
        held, device, holding, depth = self.states.held, self.states.device, self._live, 0
        depths = found.held
        for state, length in spans:
            here = held[state]
            left = holding & here
            if left != holding:
                if depth:
                    _record(depths, holding ^ left, depth)
                if not left:
                    return
                holding = left
            above = device[state]
            if above is not here and holding & ~above:
                self._add_lower(found.lower, state, holding & ~above, length)
            depth += length
        if depth:
            _record(depths, holding, depth)

    def _add_lower(self, lower: dict[str, dict[int, int]], state: int, slots: int, length: int) -> None:
        masks = self.states.masks[state]
        for (tier, _), plane in self.states.planes.items():
            here = masks[plane] & slots if plane and plane < len(masks) else 0
            if here:
                slots &= ~here
                counts = lower.setdefault(tier, {})
                for slot in _slots(here):
                    counts[slot] = counts.get(slot, 0) + length

    def _reach(self, keys: array[int], spans: list[Span]) -> dict[int, int]:
        """Return how far each slot holds the prefix or is expected to. 0.15 us a predicted block."""
        reach: dict[int, int] = {}
        held, predicted, reaching, depth = self.states.held, self.predicted.get, self._live, 0
        for state, length in (*spans, (NOBODY, len(keys))):
            needing = reaching & ~held[state]
            end = min(depth + length, len(keys))
            for at in range(depth, end) if needing else ():
                expected = predicted(keys[at], 0)
                ended = needing & ~expected
                if ended:
                    if at:
                        _record(reach, ended, at)
                    reaching &= ~ended
                    needing &= expected
                    if not needing:
                        break
            depth = end
            if not reaching:
                return reach
        if depth:
            _record(reach, reaching, depth)
        return reach


def as_keys(keys: Iterable[int]) -> array[int]:
    """Return block keys as the array that `match` works on: themselves, when they are one."""
    return keys if type(keys) is array else array("Q", keys)


def strike(masks: Masks, key: int, bit: int) -> None:
    """Clear one bit of a key's mask, and the entry with its last bit."""
    mask = masks.get(key)
    if mask is None:
        return
    left = mask & ~bit
    if left:
        masks[key] = left
    else:
        del masks[key]


@lru_cache(maxsize=4096)
def _slots(mask: int) -> tuple[int, ...]:
    return tuple(slot for slot, digit in enumerate(reversed(bin(mask))) if digit == "1")


def _record(depths: dict[int, int], slots: int, depth: int) -> None:
    if slots & (slots - 1):
        depths.update(dict.fromkeys(_slots(slots), depth))
    else:
        # One rank drops out at a time, mostly.
        depths[slots.bit_length() - 1] = depth
