"""Several processes of one router, and several routers: what they tell each other, and who brings it.

The rule of this room: what is told is the core's matter (`core.said`, `core.telling`, `core.peers`), and what
an admin call does the fleet's (`fleet.effects`); here are processes, sockets and timers. Processes of one
router are started by one parent, which serves nobody: it holds the listening sockets, starts anew who dies,
and passes on what all must follow. Loads go straight from process to process.
"""

from __future__ import annotations
