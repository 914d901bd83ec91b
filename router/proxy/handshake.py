"""uvloop's event loop, in which a client may take no longer over a TLS handshake than over a head.

uvicorn passes no such limit on, and a minute is what loops give by themselves.
"""

from __future__ import annotations

from typing import Any

import uvloop

from router.proxy.limits import ClientLimits


class Loop(uvloop.Loop):
    """A loop whose TLS servers break off handshakes that take longer than `ClientLimits.head_seconds`."""

    async def create_server(self, *args: Any, **kwargs: Any) -> Any:
        """Do what any loop does; with TLS, under that limit unless there is another."""
        if kwargs.get("ssl") is not None:
            kwargs.setdefault("ssl_handshake_timeout", ClientLimits().head_seconds)
        return await super().create_server(*args, **kwargs)
