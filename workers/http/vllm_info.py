"""What vLLM 0.32 tells about itself: event sources, models, tokens, health, load."""

from __future__ import annotations

from dataclasses import dataclass
from time import time
from typing import TYPE_CHECKING, Any

from workers.http.answer import Json, Text
from workers.http.ask import not_served
from workers.http.body import string
from workers.http.control import json_body, route
from workers.http.errors import missing
from workers.http.metrics import vllm_metrics
from workers.http.prompts import chat_tokens

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.routing import Route

    from workers.http.control import Handler
    from workers.http.edge import Edge

VERSION = "0.32.0"
_PERMISSION = {
    "id": "modelperm-stand-in",
    "object": "model_permission",
    "created": 0,
    "allow_create_engine": False,
    "allow_sampling": True,
    "allow_logprobs": True,
    "allow_search_indices": False,
    "allow_view": True,
    "allow_fine_tuning": False,
    "organization": "*",
    "group": None,
    "is_blocking": False,
}


def info_routes(edge: Edge) -> list[Route]:
    """Return the routes that change nothing."""
    tells = Info(edge)
    handlers: dict[str, Handler] = {
        "/health": tells.health,
        "/ping": tells.health,
        "/version": tells.version,
        "/load": tells.load,
        "/v1/models": tells.models,
        "/kv_event_sources": tells.kv_event_sources,
        "/metrics": tells.metrics,
    }
    return [
        route(edge, "POST", "/tokenize", tells.tokenize),
        *(route(edge, "GET", path, handler) for path, handler in handlers.items()),
    ]


@dataclass(slots=True)
class Info:
    """The handlers."""

    edge: Edge

    async def health(self, _request: Request) -> Text:
        """Healthy, paused or not."""
        return Text()

    async def version(self, _request: Request) -> Json:
        """The engine's version."""
        return Json({"version": VERSION})

    async def load(self, _request: Request) -> Json:
        """The requests that have not been answered."""
        return Json({"server_load": self.edge.live})

    async def models(self, _request: Request) -> Json:
        """The model, with its directory as root, and its adapters."""
        spec = self.edge.spec
        base = self._model(spec.model, self.edge.tokenizer.path, None)
        adapters = [self._model(name, name, spec.model) for name in spec.adapters]
        return Json({"object": "list", "data": [base, *adapters]})

    def _model(self, name: str, root: str, parent: str | None) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": int(time()),
            "owned_by": "vllm",
            "root": root,
            "parent": parent,
            "max_model_len": self.edge.spec.max_model_len if parent is None else None,
            "permission": [_PERMISSION],
        }

    async def kv_event_sources(self, _request: Request) -> Json:
        """Where each rank publishes and replays."""
        return Json({str(driver.number): self._source(driver.number) for driver in self.edge.drivers})

    def _source(self, rank: int) -> dict[str, Any]:
        events, endpoints = self.edge.spec.events, self.edge.endpoints
        if events is None or endpoints is None:
            return {"enable_kv_cache_events": False, "publisher": "null"}
        return {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": endpoints.events(rank),
            "replay_endpoint": endpoints.replay(rank),
            "buffer_steps": events.buffer_steps,
            "hwm": events.hwm,
            "max_queue_size": events.hwm,
            "topic": events.topic,
        }

    async def tokenize(self, request: Request) -> Json:
        """Token ids of a prompt or of a chat."""
        body = await json_body(request)
        prompt, model = string(body, "prompt"), string(body, "model")
        if prompt is None and "messages" not in body:
            raise missing("body.prompt")
        if model not in {None, self.edge.spec.model, *self.edge.spec.adapters}:
            raise not_served(self.edge, str(model))
        tokens = chat_tokens(self.edge, body) if prompt is None else self.edge.tokenizer.encode(prompt)
        length = self.edge.spec.max_model_len
        return Json({"count": len(tokens), "max_model_len": length, "tokens": tokens, "token_strs": None})

    async def metrics(self, _request: Request) -> Text:
        """Prometheus text."""
        return Text(vllm_metrics(self.edge))
