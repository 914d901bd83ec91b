"""A control route: an ASGI application around a function from a request to an answer."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf, nan
from typing import TYPE_CHECKING, Any, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route

from workers.http.body import parse
from workers.http.errors import EdgeError, error_answer

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Receive, Scope, Send

    from workers.http.answer import Json, Text
    from workers.http.edge import Edge

Handler: TypeAlias = "Callable[[Request], Awaitable[Json | Text]]"
_FLAGS = {
    **dict.fromkeys(("1", "true", "t", "yes", "y", "on"), True),
    **dict.fromkeys(("0", "false", "f", "no", "n", "off"), False),
}


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
        except ClientDisconnect:
            return
        await answer(scope, receive, send)


def route(edge: Edge, methods: str, path: str, handler: Handler) -> Route:
    """Return the route of a handler; `methods` are separated by blanks."""
    return Route(path, Control(edge, handler), methods=methods.split())


async def json_body(request: Request) -> dict[str, Any]:
    """Return a request's JSON object; an empty body is an empty object."""
    return parse(await request.body(), empty=True)


def flag(request: Request, name: str, *, default: bool) -> bool:
    """Return a boolean query parameter; raises BadRequest for a text that is none."""
    value = request.query_params.get(name)
    if value is None:
        return default
    if value.lower() not in _FLAGS:
        raise refused(name, "bool_parsing", "a valid boolean, unable to interpret input", value)
    return _FLAGS[value.lower()]


def seconds(request: Request, name: str, *, default: float) -> float:
    """Return a query parameter in seconds; raises BadRequest for a text that is no number from 0 on."""
    value = request.query_params.get(name)
    try:
        number = default if value is None else float(value)
    except ValueError:
        number = nan
    if not 0 <= number < inf:
        raise refused(name, "float_parsing", "a finite number of seconds, 0 or more", value)
    return number


def whole(request: Request, name: str, *, default: int, most: int) -> int:
    """Return a query parameter that is a whole number from 0 to `most`; raises BadRequest for any other."""
    value = request.query_params.get(name, str(default))
    if not re.fullmatch(r"[+-]?[0-9]{1,9}", value):
        wanted = "a valid integer, unable to parse string as an integer"
        raise refused(name, "int_parsing", wanted, value)
    if int(value) < 0:
        raise refused(name, "greater_than_equal", "greater than or equal to 0", value, {"ctx": {"ge": 0}})
    if int(value) > most:
        raise refused(name, "less_than_equal", f"less than or equal to {most}", value, {"ctx": {"le": most}})
    return int(value)


def choice(request: Request, name: str, choices: tuple[str, ...], *, default: str) -> str:
    """Return a query parameter that is one of some; raises BadRequest for any other."""
    value = request.query_params.get(name, default)
    if value in choices:
        return value
    quoted = [repr(entry) for entry in choices]
    expected = f"{', '.join(quoted[:-1])} or {quoted[-1]}"
    raise refused(name, "literal_error", expected, value, {"ctx": {"expected": expected}})


def refused(
    name: str, kind: str, wanted: str, value: str | None, more: dict[str, Any] | None = None
) -> EdgeError:
    """Return the error of a query parameter that is not what it should be, in vLLM's words."""
    problem = {"type": kind, "loc": f"query.{name}", "msg": f"Input should be {wanted}", "input": value}
    message = f"1 validation error:\n  {problem | (more or {})}"
    return EdgeError(message, status=400, kind="Bad Request", param=f"query.{name}")
