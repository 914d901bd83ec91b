"""Clients' limits over all processes of a router: one memory that all of them count in.

A bucket is two numbers in it: the name's digest (u64), and when the bucket will be full again (f64, seconds
of `perf_counter`, which is one clock for all processes of a machine). One that is full says nothing, so that
its place can be anybody's: nothing has to be tidied up. The memory is the parent's, and survives a process.
"""

from __future__ import annotations

import fcntl
import os
from hashlib import sha256
from mmap import mmap
from struct import Struct
from time import perf_counter

from router.core.bucket import take

_PLACE = Struct("<Qd")
_PLACES, _LOOKED_AT = 1 << 16, 16
_BYTES = (_PLACES + _LOOKED_AT) * _PLACE.size
# A process holds the lock for microseconds. One that stands still with it is not waited for any longer: at
# worst one request too many is let in.
_LOCK_SECONDS = 0.005


def open_allowances() -> int:
    """Return a file, in memory only, for processes to count in."""
    number = os.memfd_create("kv-router-limits")
    os.truncate(number, _BYTES)
    return number


class Allowances:
    """The memory, as seen by one process; its file stays open, since closing it would give up the lock."""

    def __init__(self, file: int) -> None:
        self._file = file
        self._memory = mmap(file, _BYTES)

    def bucket(self, name: str, rate: float, burst: float) -> SharedBucket:
        """Return the bucket of a name, which is another one for other limits."""
        digest = sha256(f"{name} {rate} {burst}".encode()).digest()
        return SharedBucket(self, int.from_bytes(digest[:8], "little"), rate, burst)

    def take(self, key: int, amount: float, now: float, rate: float, burst: float) -> float:
        """See `Bucket.take`. About 5 us."""
        self._lock()
        try:
            place, full_at = self._find(key, now)
            full_at, wait = take(full_at, amount, now, rate=rate, burst=burst)
            if not wait:
                _PLACE.pack_into(self._memory, place, key, full_at)
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)
        return wait

    def _find(self, key: int, now: float) -> tuple[int, float]:
        """Return a bucket's place, and when it will be full; a new one's is that of the fullest nearby."""
        best, soonest = 0, float("inf")
        first = key % _PLACES * _PLACE.size
        for place in range(first, first + _LOOKED_AT * _PLACE.size, _PLACE.size):
            held, full_at = _PLACE.unpack_from(self._memory, place)
            if held == key:
                return place, full_at
            if full_at < soonest:
                best, soonest = place, full_at
            if not held:
                break  # it has never been taken, so nothing of this key lies behind it
        return best, now

    def _lock(self) -> None:
        until = perf_counter() + _LOCK_SECONDS
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                if perf_counter() > until:
                    return
                os.sched_yield()
            else:
                return


class SharedBucket:
    """One bucket of all processes."""

    __slots__ = ("_allowances", "_burst", "_key", "_rate")

    def __init__(self, allowances: Allowances, key: int, rate: float, burst: float) -> None:
        self._allowances = allowances
        self._key = key
        self._rate = rate
        self._burst = burst

    def take(self, amount: float, now: float) -> float:
        """See `Bucket.take`."""
        return self._allowances.take(self._key, amount, now, self._rate, self._burst)
