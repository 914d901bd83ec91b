"""A control route: an ASGI application around a function from a request to an answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.requests import Request
from starlette.routing import Route

from workers.http.body import parse
from workers.http.errors import EdgeError, error_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from workers.http.answer import Json, Text
    from workers.http.edge import Edge

Handler: TypeAlias = "Callable[[Request], Awaitable[Json | Text]]"


@dataclass(slots=True)
class Control:
    """One route; an EdgeError becomes the engine's own error body."""

    edge: Edge
    handler: Handler

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            answer = await self.handler(Request(scope, receive))
        except EdgeError as error:
            answer = error_answer(self.edge.spec.engine, error)
        await answer(scope, receive, send)


def route(edge: Edge, methods: str, path: str, handler: Handler) -> Route:
    """Return the route of a handler; `methods` are separated by blanks."""
    return Route(path, Control(edge, handler), methods=methods.split())


async def json_body(request: Request) -> dict[str, Any]:
    """Return a request's JSON object; an empty body is an empty object."""
    return parse(await request.body(), empty=True)


def flag(request: Request, name: str, *, default: bool) -> bool:
    """Return a boolean query parameter."""
    value = request.query_params.get(name)
    return default if value is None else value.lower() in {"1", "true", "yes", "on"}
