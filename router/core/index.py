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
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

# Lineups are made of these, when there may be no descriptor left to read them by.
import router.core.board
import router.core.rendezvous  # noqa: F401
from router.core.crowds import Crowds
from router.core.eviction import Eviction
from router.core.holder import Holder
from router.core.lineup import Lineups
from router.core.match import Match
from router.core.matching import measure, spans_along
from router.core.packed import Packed
from router.core.reach import Reach
from router.core.states import States
from router.core.sweep import Sweep
from router.core.tree import ROOT, Tree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from router.core.lineup import Lineup

Masks: TypeAlias = dict[int, int]

DEFAULT_MAX_BLOCKS = 1 << 24
_STAMPS = 1 << 32
# Blocks that a view may add at once.
_PIECE = 512


class IndexSize(NamedTuple):
    """Distinct blocks kept over all ranks, their memory in bytes, and how many were given up so far."""

    blocks: int = 0
    bytes: int = 0
    evicted: int = 0


class Waiter(Protocol):
    """Somebody with events still to apply."""

    def work(self, blocks: int) -> bool:
        """Apply about so many blocks of them; say whether any are left."""


class Index:
    """The tree, the slots, and the work that is left for later.

    `max_blocks` bounds the distinct blocks kept, over all ranks; `evicted` counts those given up for it.
    `wake` is called whenever `sweep` has something to do. `doubts`: of slots whose predictions have failed,
    the share of them that can be expected to come true. `evicting`: one bit for each live slot that has lost
    a block to make room.
    """

    def __init__(self, max_blocks: int = DEFAULT_MAX_BLOCKS, wake: Callable[[], None] | None = None) -> None:
        self.tree = Tree(max_blocks)
        self.states = States()
        self.predicted: Masks = {}
        self.doubts: dict[int, float] = {}
        self.crowds = Crowds()
        self.evicting = 0
        self.lineups = Lineups()
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
        """Return the lowest unused slot, counted as live from now on: masks are as wide as the highest."""
        if self._free:
            slot = heappop(self._free)
        else:
            slot = self._next_slot
            self._next_slot += 1
        self._live |= 1 << slot
        self.lineups.clear()
        self.holders[slot] = Holder(self.tree, self.states, slot)
        return slot

    def give_slot(self, slot: int) -> None:
        """Make a slot that nothing refers to any more free for use."""
        self.states.release_slot(1 << slot)
        heappush(self._free, slot)

    def is_held(self, row: int) -> bool:
        """Say whether any live slot holds a block, in any tier of any group."""
        return any(mask & self._live for mask in self.states.masks[self.tree.states[row]])

    def full(self, lineup: Lineup) -> float:
        """Return the share of ranks whose caches are full, 0 to 1: engines evict only then."""
        evicting = self.evicting & lineup.slots
        return evicting.bit_count() / len(lineup.ranks) if evicting else 0.0

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
        self.evicting &= self._live
        self.lineups.clear()
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

        About 2 us, 1 us a run of blocks stored together, 0.2 us for each place where the holders change, and
        5 ns a block.
        """
        chained = as_keys(keys)
        runs = self.tree.locate(chained, ROOT)
        self.stamp = (self.stamp + 1) % _STAMPS
        self.tree.touch(runs, self.stamp)
        found = Match()
        spans = spans_along(self.tree, runs)
        measure(self.states, spans, self._live, found)
        if self.predicted and chained:
            Reach(self.states, spans, chained, self.predicted).extend(found, self._live)
        return found


def as_keys(keys: Iterable[int]) -> array[int]:
    """Return block keys as the array that `match` works on: themselves, when they are one."""
    return keys if type(keys) is array else array("Q", keys)
