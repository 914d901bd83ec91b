"""The outermost application: what engines answer takes the raw path, the rest goes to the control surface.

Routes that carry a prompt are routed by it; the engines' further routes by load only. What changes an engine
(weights, adapters, caches, pauses) is no such route: it must never reach one worker of many by chance.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from router.prompts.request import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from router.api.completions import Completions
    from router.proxy.asgi import Message, Receive, Send
    from router.proxy.cycle import Handler

_BY_LOAD = (
    "/classify",
    "/detokenize",
    "/encode",
    "/inference/v1/generate",
    "/pooling",
    "/rerank",
    "/score",
    "/tokenize",
    "/v2/embed",
    "/v2/rerank",
)
_V1 = "/v1/"
_CHANGES = ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")
_ROUTED = {kind.value: kind for kind in Kind if kind is not Kind.OTHER} | dict.fromkeys(_BY_LOAD, Kind.OTHER)


class Edge:
    """An application for `EdgeProtocol`; `stopping` is to be called once no more requests are taken."""

    __slots__ = ("_control", "_other", "_routes", "stopping")

    def __init__(self, completions: Completions, control: ASGIApp, *, stopping: Callable[[], None]) -> None:
        self._control = control
        self._routes = {path: partial(completions.serve, kind) for path, kind in _ROUTED.items()}
        self._other = partial(completions.serve, Kind.OTHER)
        self.stopping = stopping

    def handler(self, method: bytes, path: str) -> Handler | None:
        """Return what serves a request past ASGI, if it is one to route; one lookup when hot."""
        if method != b"POST":
            return None
        handler = self._routes.get(path)
        if handler is None and path.startswith(_V1) and path not in _CHANGES:
            return self._other
        return handler

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve anything else."""
        await self._control(scope, receive, send)
