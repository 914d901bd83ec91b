"""What the OpenAI surface can be asked by GET and DELETE: models, and responses that workers have stored.

A model is whatever some worker serves. A stored response is with the one worker that has made it; whoever
wants it must ask that one, which the response's `x-kv-router-worker` has named: any other would say that it
does not exist.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from router.api.routes import not_here

if TYPE_CHECKING:
    from fastapi import FastAPI

    from router.fleet.fleet import Fleet
    from router.fleet.route import Route

_RESPONSE = "/v1/responses/{response}"


def add_object_routes(app: FastAPI, fleet: Fleet) -> None:
    """Add them to the control surface."""

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The union of the models that the workers serve."""
        return {"object": "list", "data": [_card(name, route) for name, route in fleet.models().items()]}

    @app.get("/v1/models/{model:path}")
    async def model(model: str) -> dict[str, Any]:
        """One model, or adapter, that a worker serves."""
        route = fleet.models().get(model)
        if route is None:
            raise fleet.unknown(model)
        return _card(model, route)

    @app.get(_RESPONSE)
    @app.delete(_RESPONSE)
    @app.get(_RESPONSE + "/input_items")
    @app.post(_RESPONSE + "/cancel")
    async def stored(response: str) -> None:
        """A response that one of the workers has stored: not through the router."""
        raise not_here(response)


def _card(name: str, route: Route) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "kv-router",
        "root": route.model,
        "parent": route.model if route.lora else None,
    }
