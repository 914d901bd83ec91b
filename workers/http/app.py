"""The ASGI application of one worker: the routes of its engine, `/_truth` and `/_faults` for tests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.routing import Route

from workers.faults import FaultError, parse_faults
from workers.http import ask, sglang, sglang_info, vllm, vllm_info, vllm_weights
from workers.http.answer import Json
from workers.http.control import route
from workers.http.errors import BadRequest
from workers.http.serve import Generate
from workers.http.shapes import Native, OpenAI
from workers.http.vllm_shapes import VllmOpenAI

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from workers.faults import Faults
    from workers.http.edge import Edge


def application(edge: Edge, faults: Breakable) -> Starlette:
    """Return the application in front of a worker's ranks."""
    own = _sglang_routes(edge) if edge.spec.engine == "sglang" else _vllm_routes(edge)
    routes = [*_generating(edge), *own, _truth(edge), *_fault_routes(edge, faults)]
    return Starlette(routes=routes, exception_handlers={404: _refuse, 405: _refuse})


async def _refuse(_request: Request, error: Exception) -> Response:
    """Say what FastAPI says, which both engines are built on, of a route that is not there."""
    assert isinstance(error, HTTPException)  # noqa: S101 - of these codes it is
    return JSONResponse({"detail": error.detail}, error.status_code, error.headers)


def _generating(edge: Edge) -> list[Route]:
    shape = OpenAI if edge.spec.engine == "sglang" else VllmOpenAI
    completions = Generate(edge, ask.completion, partial(shape, chat=False))
    chats = Generate(edge, ask.chat, partial(shape, chat=True))
    return [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chats, methods=["POST"]),
    ]


def _sglang_routes(edge: Edge) -> list[Route]:
    native = Route("/generate", Generate(edge, ask.native, Native), methods=["POST", "PUT"])
    return [native, *sglang.control_routes(edge), *sglang_info.info_routes(edge)]


def _vllm_routes(edge: Edge) -> list[Route]:
    return [*vllm.control_routes(edge), *vllm_weights.weight_routes(edge), *vllm_info.info_routes(edge)]


class Breakable(Protocol):
    """What can be told to misbehave."""

    def follow(self, faults: Faults) -> None:
        """Follow a plan from now on, in place of the one before."""
        ...

    def misdeeds(self) -> dict[str, Any]:
        """Return the plan in force and how often each fault has happened."""
        ...


def _fault_routes(edge: Edge, faults: Breakable) -> list[Route]:
    async def tell(_request: Request) -> Json:
        return Json(faults.misdeeds())

    async def change(request: Request) -> Json:
        try:
            plan = parse_faults(await request.body() or b"{}")
        except FaultError as error:
            raise BadRequest(str(error)) from error
        faults.follow(plan)
        return Json(faults.misdeeds())

    return [route(edge, "GET", "/_faults", tell), route(edge, "POST", "/_faults", change)]


def _truth(edge: Edge) -> Route:
    async def truth(_request: Request) -> Json:
        return Json(edge.truth())

    return route(edge, "GET", "/_truth", truth)
