"""The ASGI application of one worker: the routes of its engine, and `/_truth` for tests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route

from workers.http import ask, sglang, sglang_info, vllm, vllm_info
from workers.http.answer import Json
from workers.http.control import route
from workers.http.serve import Generate
from workers.http.shapes import Native, OpenAI

if TYPE_CHECKING:
    from starlette.requests import Request

    from workers.http.edge import Edge


def application(edge: Edge) -> Starlette:
    """Return the application in front of a worker's ranks."""
    own = _sglang_routes(edge) if edge.spec.engine == "sglang" else _vllm_routes(edge)
    return Starlette(routes=[*_generating(edge), *own, _truth(edge)])


def _generating(edge: Edge) -> list[Route]:
    completions = Generate(edge, ask.completion, partial(OpenAI, chat=False))
    chats = Generate(edge, ask.chat, partial(OpenAI, chat=True))
    return [
        Route("/v1/completions", completions, methods=["POST"]),
        Route("/v1/chat/completions", chats, methods=["POST"]),
    ]


def _sglang_routes(edge: Edge) -> list[Route]:
    native = Route("/generate", Generate(edge, ask.native, Native), methods=["POST", "PUT"])
    return [native, *sglang.control_routes(edge), *sglang_info.info_routes(edge)]


def _vllm_routes(edge: Edge) -> list[Route]:
    return [*vllm.control_routes(edge), *vllm_info.info_routes(edge)]


def _truth(edge: Edge) -> Route:
    async def truth(_request: Request) -> Json:
        return Json(edge.truth())

    return route(edge, "GET", "/_truth", truth)
