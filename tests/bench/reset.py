"""How long anything holds the loop: resets of large views, the sweep after them, large events, growth.

Times are CPU time of the thread, so that others on the machine do not count.

Bars: a reset of a view of a million blocks within 1 ms; nothing else over 5 ms.
"""

from __future__ import annotations

import gc
from functools import partial
from random import Random
from time import thread_time
from typing import TYPE_CHECKING

from router.core.events import Batch, Event, Removed, Stored
from router.core.index import Index
from router.core.view import View
from router.fleet.fleet import SWEEP_PORTION

if TYPE_CHECKING:
    from collections.abc import Callable

BLOCKS = 1_000_000
STEP = 256
LARGE = 32_768


def main() -> None:
    """Print the table."""
    gc.disable()
    print(f"{'ms of loop time':44} {'longest':>9} {'in all':>9}")
    for name, copies in (("SGLang", False), ("vLLM", True)):
        measure(name, copies=copies)
    gc.enable()


def measure(name: str, *, copies: bool) -> None:
    """Fill a view, give it large events, reset it, and sweep."""
    rng = Random(1)
    index = Index()
    view = View(index, "m", block_size=1, counts_copies=copies)

    def fill() -> None:
        hashes = [rng.getrandbits(63) for _ in range(STEP)]
        view.apply(batch(Stored(list(hashes), None, rng.randbytes(4 * STEP), 1, *PLAIN)))

    show(f"{name}: {BLOCKS:,} blocks, {STEP} an event", [timed(fill) for _ in range(BLOCKS // STEP)])
    hashes = [rng.getrandbits(63) for _ in range(LARGE)]
    large: list[tuple[str, Event]] = [
        ("store", Stored(list(hashes), None, rng.randbytes(4 * LARGE), 1, *PLAIN)),
        ("removal", Removed(list(hashes), "GPU", 0)),
    ]
    for kind, event in large:
        first = timed(partial(view.apply, batch(event)))
        show(f"{name}: {kind} of {LARGE:,} blocks in one event", [first, *swept(index)])
    show(f"{name}: reset of {sum(view.blocks().values()):,} blocks", [timed(lambda: view.reset("bench"))])
    show(f"{name}: the sweep after it", swept(index))
    print(f"{'':44} {index.blocks} blocks left, {index.nbytes():,} bytes")


PLAIN = (False, "GPU", None, None, None, 0, None)


def batch(event: Event) -> Batch:
    """Return an event as a batch."""
    return Batch(1.0, [event], 0)


def swept(index: Index) -> list[float]:
    """Sweep until nothing is left; return the time of each portion."""
    times, more = [], True

    def portion() -> None:
        nonlocal more
        more = index.sweep(SWEEP_PORTION)

    while more:
        times.append(timed(portion))
    return times


def timed(work: Callable[[], object]) -> float:
    """Return the time of one call, in seconds."""
    began = thread_time()
    work()
    return thread_time() - began


def show(name: str, times: list[float]) -> None:
    """Print one row."""
    print(f"{name:44} {max(times) * 1e3:>9.2f} {sum(times) * 1e3:>9.0f}")
