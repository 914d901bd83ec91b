"""Errors a client sees, and how each engine writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers.http.answer import Json

if TYPE_CHECKING:
    from workers.spec import EngineName


class EdgeError(Exception):
    """A refused request: HTTP status, OpenAI-style type, and the field at fault."""

    def __init__(self, message: str, *, status: int, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.message, self.status, self.kind, self.param = message, status, kind, param


class BadRequest(EdgeError):
    """A request the engine cannot take: 400."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, status=400, kind="BadRequestError", param=param)


class NotFound(EdgeError):
    """A model that is not served: 404."""

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message, status=404, kind="NotFoundError", param=param)


def missing(field: str) -> EdgeError:
    """Return vLLM's error of a body without a field, such as `body.prompt`."""
    problem = {"type": "missing", "loc": field, "msg": "Field required", "input": "None"}
    return EdgeError(f"1 validation error:\n  {problem}", status=400, kind="Bad Request", param=field)


def error_answer(engine: EngineName, error: EdgeError) -> Json:
    """Return the engine's own error body: flat on SGLang, under `error` on vLLM."""
    fields = {"message": error.message, "type": error.kind, "param": error.param, "code": error.status}
    body = {"error": fields} if engine == "vllm" else {"object": "error", **fields}
    return Json(body, error.status)
