"""The outermost application: what engines answer takes the raw path, the rest goes to the control surface.

Routes that carry a prompt are routed by it; the engines' further routes by load only. What changes an engine
(weights, adapters, caches, pauses) is no such route: it must never reach one worker of many by chance. Where
clients need keys, nothing is done for a request before its key is known.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from router.api.answers import error_answer, send_error
from router.api.routes import ROUTED, kind_of, not_routed
from router.api.watch import PATH as WATCH
from router.errors import RouterError, Stopping, WrongMethod
from router.prompts.request import Kind
from router.proxy.asgi import SENDER

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from typing import Any

    from starlette.types import ASGIApp

    from router.api.completions import Completions
    from router.api.door import Door
    from router.api.hosts import Hosts
    from router.api.watch import Watch
    from router.proxy.asgi import Message, Receive, Send
    from router.proxy.cycle import Cycle, Handler
    from router.proxy.forwarding import Forwarding, Sender
    from router.proxy.headers import Field
    from router.proxy.limits import ClientLimits


class Edge:
    """An application for `EdgeProtocol`.

    `controls` says of a path whether `control` has a route for it, whatever the method.
    `leaving` is to be called once the router knows that it will stop. `stopping` is called once no more
    requests are taken. `door` is None where no keys are asked for. `hosts` knows by which names the control
    surface may be asked. `limits` are clients'.
    """

    __slots__ = (
        "_completions",
        "_control",
        "_controls",
        "_door",
        "_hosts",
        "_other",
        "_routes",
        "_stopping",
        "_watch",
        "forwarding",
        "leaving",
        "limits",
    )

    def __init__(
        self,
        completions: Completions,
        control: ASGIApp,
        watch: Watch,
        *,
        controls: Callable[[str], bool],
        leaving: Callable[[], None],
        stopping: Callable[[], None],
        forwarding: Forwarding,
        limits: ClientLimits,
        hosts: Hosts,
        door: Door | None = None,
    ) -> None:
        self._completions = completions
        self._control = control
        self._controls = controls
        self._door = door
        self._hosts = hosts
        self._watch = watch
        self._routes = {path: _served(completions, kind, door) for path, kind in ROUTED.items()}
        self._other = _served(completions, Kind.OTHER, door)
        self.forwarding = forwarding
        self.limits = limits
        self.leaving = leaving
        self._stopping = stopping

    def unread(self, status: int) -> None:
        """Count what was refused before there was a request to tell of, with this status."""
        self._completions.unread(status)

    def stopping(self) -> None:
        """Let go of who waits or watches; to be called once no more requests are taken."""
        self._watch.close()
        self._stopping()

    def handler(self, method: bytes, path: str) -> Handler | None:
        """Return what serves a request past ASGI, if it is one to route; one lookup when hot."""
        handler = self._routes.get(path) if method == b"POST" else None
        if handler is not None:
            return handler
        if kind_of(method, path) is not None:
            return self._other
        if path == WATCH:
            return self._watched if method == b"GET" else None
        if method == b"POST" and not self._controls(path):
            return partial(self._lost, path)
        return None

    async def _watched(self, cycle: Cycle) -> None:
        error = self._misnamed(WATCH, cycle.headers, cycle.sender)
        if error is not None:
            send_error(cycle, error, b"-")
        else:
            await self._watch.serve(cycle)

    def _lost(self, path: str, cycle: Cycle) -> Coroutine[Any, Any, None]:
        """Refuse what no route takes; it counts, and is told of, like any other request that is refused."""
        error = self._barred(path, cycle.headers, cycle.sender) or not_routed("POST", path)
        return self._completions.refuse(Kind.OTHER, cycle, error)

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Serve anything else."""
        if scope["type"] == "http":
            error = self._objection(scope)
            if error is not None:
                await error_answer(error)(scope, receive, send)
                return
            if scope["method"] == "HEAD":  # the server leaves the body out
                scope = {**scope, "method": "GET"}
            await self._answer(scope, receive, send)
            return
        await self._control(scope, receive, send)

    async def _answer(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer a request; the server cancels it when the router stops and its time is over."""
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._control(scope, receive, sent)
        except asyncio.CancelledError:
            if not begun:
                await error_answer(Stopping("the router is stopping", retry_after=1))(scope, receive, send)

    def _objection(self, scope: Message) -> RouterError | None:
        path, method = scope["path"], scope["method"]
        misnamed = self._misnamed(path, scope["headers"], scope["state"][SENDER])
        if misnamed is not None:
            return misnamed
        if barred := self._barred(path, scope["headers"], scope["state"][SENDER], counted=method == "POST"):
            return barred
        if path in ROUTED:
            return not_routed(method, path)
        if path == WATCH:
            return WrongMethod(f"{path} takes GET, not {method}", allow="GET")
        return None

    def _misnamed(self, path: str, fields: Sequence[Field], sender: Sender) -> RouterError | None:
        """Return why a path is not answered to who asks by this name, None when it is; refusals count."""
        try:
            self._hosts.check(path, fields, sender)
        except RouterError as error:
            self._completions.unread(error.status)
            return error
        return None

    def _barred(
        self, path: str, fields: Sequence[Field], sender: Sender, *, counted: bool = True
    ) -> RouterError | None:
        """Return why the door lets nobody with these headers to a path, None when it does."""
        if self._door is not None and not self._door.is_open(path):
            try:
                self._door.admit(fields, sender, counted=counted)
            except RouterError as error:
                return error
        return None


def _served(completions: Completions, kind: Kind, door: Door | None) -> Handler:
    serve = partial(completions.serve, kind)
    if door is None:
        return serve
    admit = door.admit

    def serve_admitted(cycle: Cycle) -> Coroutine[Any, Any, None]:
        try:
            client = admit(cycle.headers, cycle.sender)
        except RouterError as error:
            return completions.refuse(kind, cycle, error)
        return serve(cycle, client)

    return serve_admitted
