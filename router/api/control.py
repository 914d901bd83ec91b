"""The control surface: models, health, readiness, metrics, the fleet, explanations. On FastAPI, not hot."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException

from router import __version__
from router.api.answers import error_headers
from router.api.explain import Explainer
from router.errors import NoRoute, NoWorker, RouterError
from router.fleet.fleet import Fleet
from router.observe.exposition import Exposition
from router.observe.rows import WorkerRow, workers_json
from router.proxy.body import BodyBudget, read_body

_JSON = "application/json"


def control_app(
    fleet: Fleet,
    explainer: Explainer,
    exposition: Exposition,
    rows: Callable[[], list[WorkerRow]],
    *,
    max_body_bytes: int,
    bodies: BodyBudget,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
) -> FastAPI:
    """Return the application."""
    app = FastAPI(
        title="kv-router",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    _add_fleet_routes(app, fleet, exposition, rows)

    @app.post("/explain")
    async def explain(request: Request) -> Response:
        """What the router would do with this body, and why; sends nothing."""
        body = await read_body(request.receive, max_body_bytes, bodies)
        try:
            return Response(msgspec.json.encode(await explainer.explain(body)), media_type=_JSON)
        finally:
            bodies.give_back(len(body))

    @app.exception_handler(RouterError)
    async def refuse(_: Request, error: RouterError) -> Response:
        return _error(error)

    @app.exception_handler(HTTPException)
    async def refuse_http(request: Request, error: HTTPException) -> Response:
        unknown = NoRoute(f"{request.method} {request.url.path:.200}: {error.detail}")
        return Response(
            unknown.body(), status_code=error.status_code, media_type=_JSON, headers=error.headers
        )

    @app.exception_handler(Exception)
    async def fail(_: Request, __: Exception) -> Response:
        return _error(RouterError("the router failed to handle this request"))

    return app


def _add_fleet_routes(
    app: FastAPI, fleet: Fleet, exposition: Exposition, rows: Callable[[], list[WorkerRow]]
) -> None:
    @app.get("/health")
    async def health() -> Response:
        """The process is up."""
        return Response(b'{"status":"ok"}', media_type=_JSON)

    @app.get("/ready")
    async def ready() -> Response:
        """200 once one worker can take traffic."""
        if fleet.ready:
            return Response(b'{"status":"ready"}', media_type=_JSON)
        return _error(NoWorker("no worker can take traffic yet", retry_after=1))

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Prometheus metrics."""
        body, content_type = exposition.render(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    @app.get("/workers")
    async def workers() -> Response:
        """Every worker, its state, and each rank's view."""
        return Response(workers_json(rows()), media_type=_JSON)

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """The union of the models that the workers serve."""
        return {"object": "list", "data": _cards(fleet)}


def _cards(fleet: Fleet) -> list[dict[str, Any]]:
    created = int(time.time())
    return [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "kv-router",
            "root": route.model,
            "parent": route.model if route.lora else None,
        }
        for name, route in fleet.models().items()
    ]


def _error(error: RouterError) -> Response:
    headers = {name.decode(): value.decode() for name, value in error_headers(error)}
    return Response(error.body(), status_code=error.status, headers=headers)
