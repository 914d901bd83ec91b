"""The document that describes every route, also those that never reach the application that serves it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastapi.openapi.utils import get_openapi

from router.api.routes import ROUTED
from router.prompts.request import Kind

if TYPE_CHECKING:
    from fastapi import FastAPI

_TOKENS = {"type": "array", "items": {"type": "integer", "minimum": 0}}
_TEXT_OR_TOKENS = {"oneOf": [{"type": "string"}, _TOKENS]}
_OBJECTS = {"type": "array", "items": {"type": "object"}, "minItems": 1}
# What a body must have for the router to know its prompt; everything else passes unread.
_PROMPTS: dict[Kind, dict[str, Any]] = {
    Kind.COMPLETIONS: {"prompt": _TEXT_OR_TOKENS},
    Kind.CHAT: {"messages": _OBJECTS},
    Kind.GENERATE: {"text": {"type": "string"}, "input_ids": _TOKENS},
    Kind.RESPONSES: {"input": {"oneOf": [{"type": "string"}, _OBJECTS]}},
    Kind.MESSAGES: {"messages": _OBJECTS, "max_tokens": {"type": "integer", "minimum": 1}},
}
_COMMON = {"model": {"type": "string"}, "stream": {"type": "boolean"}}
_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        }
    },
}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the whole router."""
    described = get_openapi(title=app.title, version=app.version, routes=app.routes)
    for path, kind in ROUTED.items():
        described["paths"][path] = {"post": _routed(kind)}
    described.setdefault("components", {}).setdefault("schemas", {})["Error"] = _ERROR
    return described


def body_of(kind: Kind) -> dict[str, Any]:
    """Return what is said of the body of a route that carries a prompt, or of any other."""
    prompt = _PROMPTS.get(kind, {})
    required = [] if kind is Kind.GENERATE else sorted(prompt)  # one of the two
    schema = {"type": "object", "required": required, "properties": {**prompt, **_COMMON}}
    return {"required": True, "content": {"application/json": {"schema": schema}}}


def _routed(kind: Kind) -> dict[str, Any]:
    by_load = kind is Kind.OTHER
    return {
        "summary": "Answered by " + ("one of the workers" if by_load else "the best worker for its prompt"),
        "requestBody": body_of(kind),
        "responses": {
            "200": {"description": "The worker's answer, as it came"},
            "default": {
                "description": "An error, of the worker's or the router's own",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            },
        },
    }
