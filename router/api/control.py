"""The control surface: models, health, readiness, metrics, the fleet, explanations. On FastAPI, not hot."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from router import __version__
from router.api.answers import error_answer
from router.api.exchange import CLIENT_CLOSED_REQUEST
from router.api.explain import Explainer
from router.api.objects import add_object_routes
from router.api.openapi import body_of, document
from router.api.page import add_page
from router.errors import BadRequest, NoRoute, NoWorker, RouterError, WrongMethod
from router.fleet.fleet import Fleet
from router.observe.sight import Sight
from router.prompts.request import Kind
from router.proxy.body import BodyBudget, read_body
from router.proxy.disconnect import ClientGone

_JSON = "application/json"


def control_app(
    fleet: Fleet,
    explainer: Explainer,
    sight: Sight,
    *,
    max_body_bytes: int,
    bodies: BodyBudget,
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]],
    page: bool,
) -> FastAPI:
    """Return the application, with the `page` that shows the fleet or without."""
    app = FastAPI(
        title="kv-router",
        version=__version__,
        lifespan=lifespan,
        openapi_url=None,  # ours has more in it; no page shows it, for that would load scripts from elsewhere
        redirect_slashes=False,
    )
    _add_fleet_routes(app, fleet, sight)
    add_object_routes(app, fleet)

    @app.get("/openapi.json", include_in_schema=False)
    async def openapi() -> Response:
        """This document."""
        return Response(msgspec.json.encode(document(app)), media_type=_JSON)

    @app.post("/explain", openapi_extra={"requestBody": body_of(Kind.COMPLETIONS)})
    async def explain(request: Request) -> Response:
        """What the router would do with this body, and why; sends nothing."""
        body = await read_body(request.receive, max_body_bytes, bodies)
        try:
            return Response(
                msgspec.json.encode(await explainer.explain(body, request.headers.raw)), media_type=_JSON
            )
        finally:
            bodies.give_back(len(body))

    if page:
        add_page(app)
    _add_error_handlers(app)
    return app


def has_route(app: FastAPI, path: str) -> bool:
    """Say whether a path is one of the application's, whatever the method."""
    scope = {"type": "http", "method": "", "path": path, "headers": []}
    return any(route.matches(scope)[0] is not Match.NONE for route in app.routes)


def _add_error_handlers(app: FastAPI) -> None:
    @app.exception_handler(RouterError)
    async def refuse(_: Request, error: RouterError) -> Response:
        return error_answer(error)

    @app.exception_handler(ClientGone)
    async def leave(_: Request, __: ClientGone) -> Response:
        return Response(status_code=CLIENT_CLOSED_REQUEST)  # to nobody

    @app.exception_handler(HTTPException)
    async def refuse_http(request: Request, error: HTTPException) -> Response:
        what = f"{request.method} {request.url.path:.200}: {error.detail}"
        allow = (error.headers or {}).get("Allow")
        if allow is None:
            return error_answer(NoRoute(what))
        return error_answer(WrongMethod(what, allow="GET, HEAD" if allow == "GET" else allow))

    @app.exception_handler(RequestValidationError)
    async def refuse_parameter(_: Request, __: RequestValidationError) -> Response:
        return error_answer(BadRequest("the path or query of the request is not valid"))

    @app.exception_handler(Exception)
    async def fail(_: Request, __: Exception) -> Response:
        return error_answer(RouterError("the router failed to handle this request"))


def _add_fleet_routes(app: FastAPI, fleet: Fleet, sight: Sight) -> None:
    @app.get("/health")
    async def health() -> Response:
        """The process is up."""
        return Response(b'{"status":"ok"}', media_type=_JSON)

    @app.get("/ready")
    async def ready() -> Response:
        """200 once one worker can take traffic."""
        if fleet.ready:
            return Response(b'{"status":"ready"}', media_type=_JSON)
        why = "the router is stopping" if fleet.leaving else "no worker can take traffic yet"
        return error_answer(NoWorker(why, retry_after=1))

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """Prometheus metrics."""
        body, content_type = await sight.metrics(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    @app.get("/workers")
    async def workers() -> Response:
        """Every worker, its state, and each rank's view."""
        return Response(await sight.workers(), media_type=_JSON)
