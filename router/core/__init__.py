"""The pure core: what every rank holds, what is under way, and which rank should take a request.

The rule of this room: no sockets, no asyncio, no clock of its own (time comes in as an argument, in
seconds) and no imports from the rest of the router. So every rule is tested without a network, and a
recorded stream replays to the same state.
"""

from __future__ import annotations
