"""The outermost application: what engines answer takes the raw path, the rest goes to the control surface.

Routes that carry a prompt are routed by it; the engines' further routes by load only. What changes an engine
(weights, adapters, caches, pauses) is no such route: it must never reach one worker of many by chance.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.prompts.request import Kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from router.api.completions import Completions
    from router.proxy.asgi import Message, Receive, Send

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
_KINDS = {kind.value: kind for kind in Kind if kind is not Kind.OTHER} | dict.fromkeys(_BY_LOAD, Kind.OTHER)


class Edge:
    """An ASGI application; `stopping` is to be called once no more requests are taken."""

    __slots__ = ("_completions", "_control", "stopping")

    def __init__(self, completions: Completions, control: ASGIApp, *, stopping: Callable[[], None]) -> None:
        self._completions = completions
        self._control = control
        self.stopping = stopping

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request; costs one lookup on the raw path."""
        if scope["type"] == "http" and scope["method"] == "POST":
            kind = _kind(scope["path"])
            if kind is not None:
                await self._completions.serve(kind, scope, receive, send)
                return
        await self._control(scope, receive, send)


def _kind(path: str) -> Kind | None:
    kind = _KINDS.get(path)
    if kind is None and path.startswith(_V1) and path not in _CHANGES:
        return Kind.OTHER
    return kind
