"""The operator's routes: who is in the fleet, control calls, whole weight syncs. Only with a key."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from hmac import compare_digest
from typing import Any

import msgspec
from fastapi import APIRouter, Depends, Request, Response

from router.api.keys import given
from router.api.knocks import Knocks
from router.discreet import discreet
from router.engines.control import ACTIONS, Action
from router.errors import BadRequest, ConfigError, NotAllowed, UnknownWorker
from router.fleet.control import Result, all_ok, control_all
from router.fleet.crew import Crew
from router.fleet.fleet import Fleet
from router.fleet.snapshot import snapshot
from router.fleet.spec import WorkerSpec, from_mapping, parse_worker
from router.fleet.sync import WeightSync
from router.fleet.worker import Worker
from router.proxy.asgi import SENDER
from router.proxy.body import read_body

_JSON = "application/json"
# A control call's body is small: names, paths, modes.
_MAX_BODY_BYTES = 1 << 20
_REFUSED = 502
_OF_MEMBERSHIP = ("drain", "undrain")


def admin_routes(fleet: Fleet, crew: Crew, key: str, knocks: Knocks) -> APIRouter:
    """Return the routes, each of which needs the key, given as clients give theirs.

    `knocks` tells of who has none.
    """
    expected = sha256(key.encode()).digest()

    async def allowed(request: Request) -> None:
        if not any(compare_digest(digest, expected) for digest in given(request.headers.raw)):
            knocks.refused(request.scope["state"][SENDER].named(request.headers.raw))
            raise NotAllowed("this route needs the admin key: Authorization: Bearer KEY, or x-api-key: KEY")

    routes = APIRouter(prefix="/admin", dependencies=[Depends(allowed)])

    _add_membership_routes(routes, fleet, crew)

    @routes.post("/fleet/{action}")
    async def control_fleet(action: str, request: Request) -> Response:
        """Pause, continue, flush or update_weights on every worker."""
        workers = list(fleet.workers.values())
        return _answer(await control_all(workers, _action(action, ACTIONS), await _body(request), crew.tell))

    @routes.post("/workers/{name:path}/{action}")
    async def control_worker(name: str, action: str, request: Request) -> Response:
        """The same on one worker, named by its URL, with or without the scheme."""
        workers = [_named(fleet, name)]
        known = (*ACTIONS, *_OF_MEMBERSHIP)
        return _answer(await control_all(workers, _action(action, known), await _body(request), crew.tell))

    @routes.post("/weight_sync")
    async def weight_sync(request: Request) -> Response:
        """Pause, update, flush and continue the fleet, all at once or `max_paused` at a time."""
        body = await _body(request)
        workers = _chosen(fleet, body)
        return _answer(await crew.sync(WeightSync(body, workers, crew.tell).run()))

    return routes


def _add_membership_routes(routes: APIRouter, fleet: Fleet, crew: Crew) -> None:
    @routes.post("/workers")
    async def add(request: Request) -> Response:
        """Add a worker: text as on the command line, plain or as JSON, or a mapping as in the file."""
        worker = await crew.add(_spec(await read_body(request.receive, _MAX_BODY_BYTES)))
        return Response(_row(worker), status_code=201, media_type=_JSON)

    @routes.delete("/workers/{name:path}")
    async def remove(name: str, request: Request) -> Response:
        """Drain a worker, then remove it; its requests may take so many `seconds`, then they are cut."""
        worker = _named(fleet, name)
        cut = await crew.remove(worker, _seconds(request))
        body = {"removed": worker.url, "requests_cut": cut}
        return Response(msgspec.json.encode(body), media_type=_JSON)

    @routes.post("/workers/{name:path}/drain")
    async def drain(name: str) -> Response:
        """Send no more requests to a worker."""
        worker = _named(fleet, name)
        await crew.drain(worker, on=True)
        return Response(_row(worker), media_type=_JSON)

    @routes.post("/workers/{name:path}/undrain")
    async def undrain(name: str) -> Response:
        """Send requests to a worker again."""
        worker = _named(fleet, name)
        await crew.drain(worker, on=False)
        return Response(_row(worker), media_type=_JSON)


def _row(worker: Worker) -> bytes:
    return msgspec.json.encode(snapshot([worker])[0])


def _spec(body: bytes) -> WorkerSpec:
    """Read a worker's settings; a body that is neither JSON text nor a mapping is the text itself."""
    try:
        given = msgspec.json.decode(body, type=str | dict[Any, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        given = body.decode(errors="replace")
    try:
        return parse_worker(given) if isinstance(given, str) else from_mapping(given)
    except ConfigError as error:
        raise BadRequest(error.message, param=error.param) from None


def _seconds(request: Request) -> float | None:
    text = request.query_params.get("seconds")
    if text is None or re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,6})?", text):
        return None if text is None else float(text)
    raise BadRequest(
        f"seconds: expected a number of seconds, from 0 to 999999, got {text!r:.60}", param="seconds"
    )


def _answer(results: dict[str, Result]) -> Response:
    """Answer 200 when every worker did it, else 502; the results by worker either way."""
    ok = all_ok(results)
    shown = {url: _shown(result) for url, result in results.items()}
    body = msgspec.json.encode({"ok": ok, "workers": shown})
    return Response(body, status_code=200 if ok else _REFUSED, media_type=_JSON)


def _shown(result: Result) -> Result:
    """Return a result without what only the router needs to know."""
    steps = result.get("steps")
    shown = {name: value for name, value in result.items() if name != "sent"}
    return shown if steps is None else shown | {"steps": {name: _shown(step) for name, step in steps.items()}}


def _action(name: str, known: Iterable[str]) -> Action:
    for action in ACTIONS:
        if action == name:
            return action
    raise BadRequest(f"action: expected one of {', '.join(known)}, got {name!r:.60}", param="action")


async def _body(request: Request) -> dict[str, Any]:
    raw = await read_body(request.receive, _MAX_BODY_BYTES)
    if not raw:
        return {}
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the body is not a JSON object") from None


def _named(fleet: Fleet, name: str) -> Worker:
    worker = fleet.find(name)
    if worker is None:
        raise UnknownWorker(
            f"no worker {discreet(name)!r:.200}; there are {', '.join(fleet.workers)}", param="name"
        )
    return worker


def _chosen(fleet: Fleet, body: dict[str, Any]) -> Sequence[Worker]:
    names = body.get("workers")
    if names is None:
        return list(fleet.workers.values())
    if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise BadRequest("workers: expected a list of worker URLs", param="workers")
    return list({name: _named(fleet, name) for name in names}.values())
