"""How the garbage collector is kept from holding up the event loop."""

from __future__ import annotations

import gc

# Container objects made and not freed since the collector last ran, which it then walks: 0.2 to 0.5 us each.
_YOUNG = 5_000
# After so many runs it walks what has outlived them, too; after so many of those all that lives.
_RUNS, _OLD_RUNS = 5, 10_000


def spare_the_collector() -> None:
    """Keep the collector from walking what lives for ever, and from walking much at a time.

    What requests leave behind is freed by reference counting; the collector is only there for cycles. A run
    takes 1 to 3 ms, a sixth one as long again for each third of the objects that has outlived the others.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, _RUNS, _OLD_RUNS)
