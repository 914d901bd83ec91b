"""The workers: what each is, what state it is in, and which ranks may take a request.

The rule of this room: it knows workers and their states. What their caches hold is the core's matter, how
they are spoken to the engines' and the proxy's.
"""

from __future__ import annotations
