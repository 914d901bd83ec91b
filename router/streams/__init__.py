"""ZMQ: one subscription per rank, and the replay of what a stream is missing.

The rule of this room: it moves frames between sockets and the core's cursor and view, in portions that
never hold up the event loop for long, and decides nothing itself.
"""

from __future__ import annotations
