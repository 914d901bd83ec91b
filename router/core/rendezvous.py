"""Where a key stands on each rank, the same in every router: rendezvous hashing.

The rank of the lowest place is the key's. When ranks come and go, only the keys of those change theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from router.core.costs import Amounts

# The finalizer of MurmurHash3 for 64 bits: each bit of what goes in turns half of those that come out.
_SHIFT, _FACTORS = np.uint64(33), (np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53))
_ALL = float(1 << 64)


class Rendezvous:
    """Some ranks, by their names."""

    __slots__ = ("_digests", "_names")

    def __init__(self, names: Iterable[bytes]) -> None:
        self._names = names
        self._digests: NDArray[np.uint64] | None = None  # few policies need them

    def places(self, key: int) -> NDArray[np.float64]:
        """Return the place of a 64-bit key on each rank, from 0 to 1. About 10 us, and 10 ns a rank."""
        if self._digests is None:
            self._digests = np.array([xxh3_64_intdigest(name) for name in self._names], np.uint64)
        mixed = self._digests ^ np.uint64(key)
        for factor in _FACTORS:
            mixed ^= mixed >> _SHIFT
            mixed *= factor
        mixed ^= mixed >> _SHIFT
        return mixed / _ALL

    def bounded(self, key: int, requests: Amounts, bound: float) -> NDArray[np.float64]:
        """Return the same, and one more where as many run as `bound` times the mean with this one."""
        running = np.asarray(requests, np.float64)
        full: NDArray[np.bool_] = running >= bound * (running.sum() + 1) / len(running)
        return self.places(key) + full
