"""Where workers come from while the router runs: one module per source, one reconciler for all.

The rule of this room: a source knows nobody but who tells it something. It yields the whole set of workers
that are wanted now, and yields it again whenever it has changed; what it cannot read changes nothing. The
reconciler alone touches the fleet. What a source says is the operator's word, as a --worker flag is.
"""

from __future__ import annotations
