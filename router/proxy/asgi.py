"""The words of ASGI that this room speaks, as types, and a request as uvicorn hands it to an application."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

if TYPE_CHECKING:
    from router.proxy.edge import EdgeProtocol

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Scope = MutableMapping[str, Any]

# The key of a scope's state that has who is at the other end of the connection, a `Sender`.
SENDER = "sender"


def asgi_cycle(
    edge: EdgeProtocol,
    method: bytes,
    path: str,
    raw_path: bytes,
    query: bytes,
    version: str,
    *,
    keep_alive: bool,
) -> RequestResponseCycle:
    """Return uvicorn's cycle for a request whose headers the protocol has just read."""
    return RequestResponseCycle(
        scope={
            "type": "http",
            "asgi": {"version": edge.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": edge.server,
            "client": edge.client,
            "scheme": edge.scheme or "http",
            "root_path": "",
            "headers": edge.headers,
            "state": {**edge.app_state, SENDER: edge.sender},
            "method": method.decode("ascii"),
            "path": path,
            "raw_path": raw_path,
            "query_string": query,
            "extensions": {},
        },
        transport=edge.transport,
        flow=edge.flow,
        logger=edge.logger,
        access_logger=edge.access_logger,
        access_log=False,
        default_headers=edge.server_state.default_headers,
        message_event=asyncio.Event(),
        expect_100_continue=edge.expect_100_continue,
        keep_alive=keep_alive and not edge.expect_100_continue,
        on_response=edge.on_response_complete,
    )
