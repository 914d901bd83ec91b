"""A map of 64-bit numbers to 64-bit numbers, in packed memory.

Python's dict takes 100 to 180 bytes for such an entry, this takes 25 to 65 at any fill. It is an extendible
hash table: a directory of shards, each with open addressing and linear probing. A full shard is
rebuilt alone, at twice its size or as two shards, so that no insertion ever waits for a large copy: the
longest is one shard's rebuild, about 1 ms. Keys are mixed by the caller (`fingerprint`); 0 and 1 are no
keys, 0 is no value.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

Words: TypeAlias = "NDArray[np.uint64]"
Check: TypeAlias = "Callable[[Words, Words], NDArray[np.bool_]]"

_WORD = (1 << 64) - 1
# An odd factor spreads keys that differ little over all bits; the product is one to one.
_FACTOR = 0x9E3779B97F4A7C15
_EMPTY, _GONE = 0, 1
_LOW_HALF = (1 << 32) - 1
_NUMBERS = {int}
_LEAST_SLOTS, _MOST_SLOTS = 32, 8192
# A shard is full at 0.5 to 0.65 of its size: emptier ones take more memory and fewer steps to search.
_FULL, _SPREAD, _HALF_FULL = 0.5, 0.15, 0.42
# Up to so many keys are placed faster one by one.
_FEW = 48
# Position within a shard and position in the directory come from different bits.
_PLACE_SHIFT = 11


def fingerprint(block: int | bytes) -> int:
    """Return the map's key for an engine's hash; its upper half is not 0. About 0.1 us."""
    mixed = block * _FACTOR & _WORD if isinstance(block, int) else xxh3_64_intdigest(block)
    return mixed if mixed > _LOW_HALF else mixed + _LOW_HALF + 1


def fingerprints(blocks: Sequence[int | bytes]) -> list[int]:
    """Return the map's keys for some hashes. About 60 ns each for numbers."""
    if set(map(type, blocks)) == _NUMBERS:
        numbers = cast("Sequence[int]", blocks)
        mixed = [block * _FACTOR & _WORD for block in numbers]
        if min(mixed, default=_WORD) > _LOW_HALF:
            return mixed
    return [fingerprint(block) for block in blocks]


class _Shard:
    """Keys at even, their values at odd places of one array. `room`: how many more keys fit."""

    __slots__ = ("bits", "room", "slots", "words", "wrap")

    def __init__(self, keys: Words, values: Words, size: int, bits: int) -> None:
        self.bits = bits
        self.words = np.zeros(2 * size, np.uint64)
        self.slots = self.words.data
        # Places are even numbers below 2 * size.
        self.wrap = 2 * size - 2
        # Shards fill alike; with limits that differ they are not all rebuilt at once, nor all half empty.
        spread = int(keys[0]) >> 20 & 0xFF if len(keys) else 0
        self.room = int(size * (_FULL + _SPREAD * spread / 0xFF)) - len(keys)
        _place(self.words, keys, values)

    def entries(self) -> tuple[Words, Words]:
        keys = self.words[::2]
        used = np.flatnonzero(keys > _GONE)
        return keys[used], self.words[1::2][used]


def _place(words: Words, keys: Words, values: Words) -> None:
    """Put distinct keys into an empty table: all at once, those that collide one place on, and again."""
    wrap = len(words) - 2
    places = (keys >> np.uint64(_PLACE_SHIFT) & np.uint64(wrap)).astype(np.int64)
    while len(keys) > _FEW:
        free = words[places] == _EMPTY
        words[places[free]] = keys[free]
        won = words[places] == keys
        words[places[won] + 1] = values[won]
        lost = ~won
        keys, values, places = keys[lost], values[lost], (places[lost] + 2) & wrap
    slots = words.data
    for key, value, home in zip(keys.tolist(), values.tolist(), places.tolist(), strict=True):
        place = home
        while slots[place]:
            place = (place + 2) & wrap
        slots[place], slots[place + 1] = key, value


class Packed:
    """`is_stale` says which entries nobody needs any more; they go when their shard is rebuilt."""

    __slots__ = ("__weakref__", "_directory", "_is_stale", "_shift", "count")

    def __init__(self, is_stale: Check | None = None) -> None:
        self._is_stale = is_stale
        self._start()

    def clear(self) -> list[_Shard]:
        """Forget all entries; return what held their memory."""
        old = list(dict.fromkeys(self._directory))
        self._start()
        return old

    def _start(self) -> None:
        none = np.zeros(0, np.uint64)
        self._directory = [_Shard(none, none, _LEAST_SLOTS, 0)]
        self._shift = 64
        self.count = 0

    def __len__(self) -> int:
        return self.count

    @property
    def nbytes(self) -> int:
        """Memory of the slots, in bytes."""
        return sum(shard.words.nbytes for shard in set(self._directory))

    def get(self, key: int) -> int:
        """Return a key's value, 0 when there is none. About 0.3 us."""
        shard = self._directory[key >> self._shift]
        slots, wrap = shard.slots, shard.wrap
        place = key >> _PLACE_SHIFT & wrap
        while (found := slots[place]) != key:
            if not found:
                return 0
            place = (place + 2) & wrap
        return slots[place + 1]

    def claim(self, key: int, value: int) -> int:
        """Enter a key that has no value yet; return the value it has now. About 0.4 us."""
        shard = self._directory[key >> self._shift]
        slots, wrap = shard.slots, shard.wrap
        place = key >> _PLACE_SHIFT & wrap
        while (found := slots[place]) != key:
            if not found:
                slots[place] = key
                slots[place + 1] = value
                self.count += 1
                shard.room -= 1
                if shard.room < 0:
                    self._rebuild(key, shard)
                return value
            place = (place + 2) & wrap
        return slots[place + 1]

    def claim_all(self, keys: Sequence[int], values: Sequence[int], start: int = 0) -> int:
        """Claim from place `start` on; stop at the first key that has another value and return its place.

        Returns the number of keys when all agree. About 0.3 us a key: `claim`, without the calls.
        """
        directory, shift, old = self._directory, self._shift, 0
        pairs = zip(keys, values, strict=False)
        for key, value in islice(pairs, start, None) if start else pairs:
            shard = directory[key >> shift]
            slots, wrap = shard.slots, shard.wrap
            place = key >> _PLACE_SHIFT & wrap
            while (found := slots[place]) != key:
                if not found:
                    slots[place] = key
                    slots[place + 1] = value
                    shard.room = room = shard.room - 1
                    if room < 0:
                        self._rebuild(key, shard)
                        directory, shift = self._directory, self._shift
                    break
                place = (place + 2) & wrap
            else:
                if slots[place + 1] != value:
                    at = next(n for n in range(start, len(keys)) if (keys[n], values[n]) == (key, value))
                    self.count += at - start - old
                    return at
                old += 1
        self.count += len(keys) - start - old
        return len(keys)

    def put(self, key: int, value: int) -> None:
        """Give a key a value, in place of any other."""
        if self.claim(key, value) != value:
            shard, place = self._place_of(key)
            shard.slots[place + 1] = value

    def discard(self, key: int) -> None:
        """Take a key out, if it is there."""
        shard, place = self._place_of(key)
        if place >= 0:
            shard.slots[place] = _GONE
            self.count -= 1

    def shrink(self, portion: int) -> bool:
        """Let go of up to `portion` shards of a map that nobody uses any more; say whether any are left."""
        del self._directory[-portion:]
        return bool(self._directory)

    def tidy(self, at: int) -> int:
        """Rebuild the shard at a place of the directory without what is stale; return the next place or 0."""
        if at >= len(self._directory):
            return 0
        shard = self._directory[at]
        width = len(self._directory) >> shard.bits
        self._rebuild(at << self._shift, shard)
        self._join(at)
        return at + width

    def _place_of(self, key: int) -> tuple[_Shard, int]:
        shard = self._directory[key >> self._shift]
        slots, wrap = shard.slots, shard.wrap
        place = key >> _PLACE_SHIFT & wrap
        while (found := slots[place]) != key:
            if not found:
                return shard, -1
            place = (place + 2) & wrap
        return shard, place

    def _rebuild(self, key: int, shard: _Shard) -> None:
        """Make a shard anew without what is gone or stale, larger or as two when it is full all the same."""
        keys, values = shard.entries()
        if self._is_stale is not None and len(keys):
            fresh = ~self._is_stale(keys, values)
            self.count -= len(keys) - int(fresh.sum())
            keys, values = keys[fresh], values[fresh]
        size = _size_for(len(keys))
        if size <= _MOST_SLOTS:
            self._set(key, _Shard(keys, values, size, shard.bits))
            return
        if shard.bits == 64 - self._shift:
            self._directory = [shard for shard in self._directory for _ in range(2)]
            self._shift -= 1
        bits = shard.bits + 1
        upper = (keys >> np.uint64(64 - bits)) & np.uint64(1) == 1
        for half, bit in ((~upper, 0), (upper, 1)):
            new = _Shard(keys[half], values[half], max(_size_for(int(half.sum())), _MOST_SLOTS), bits)
            start = key >> (64 - bits + 1) << 1 | bit
            self._set(start << (64 - bits), new)

    def _set(self, key: int, shard: _Shard) -> None:
        """Enter a shard at all places of the directory that it answers for."""
        width = len(self._directory) >> shard.bits
        start = (key >> self._shift) // width * width
        self._directory[start : start + width] = [shard] * width

    def _join(self, at: int) -> None:
        """Make one shard of two neighbours that have become small."""
        shard = self._directory[at]
        width = len(self._directory) >> shard.bits
        if not shard.bits or at + width >= len(self._directory) or at // width % 2:
            return
        other = self._directory[at + width]
        if other is shard or other.bits != shard.bits:
            return
        parts = shard.entries(), other.entries()
        keys, values = (np.concatenate(both) for both in zip(*parts, strict=True))
        if len(keys) < _MOST_SLOTS // 4:
            self._set(at << self._shift, _Shard(keys, values, _size_for(len(keys)), shard.bits - 1))


def _size_for(entries: int) -> int:
    """Return a power of two of slots that leaves room to grow."""
    size = _LEAST_SLOTS
    while size * _HALF_FULL < entries:
        size *= 2
    return size
