"""What clients and operators talk to: the completions path on raw ASGI, everything else on FastAPI.

The rule of this room: it turns HTTP into calls of the other rooms and their answers into HTTP. No routing
rule, no engine knowledge.
"""

from __future__ import annotations
