"""The outermost application: prompts take the raw path, everything else goes to the control surface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from router.prompts.request import Kind

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from router.api.completions import Completions
    from router.proxy.asgi import Message, Receive, Send

_KINDS = {kind.value: kind for kind in Kind}


class Edge:
    """An ASGI application."""

    __slots__ = ("_completions", "_control")

    def __init__(self, completions: Completions, control: ASGIApp) -> None:
        self._completions = completions
        self._control = control

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve one request; costs one lookup on the raw path."""
        if scope["type"] == "http" and scope["method"] == "POST":
            kind = _KINDS.get(scope["path"])
            if kind is not None:
                await self._completions.serve(kind, scope, receive, send)
                return
        await self._control(scope, receive, send)
