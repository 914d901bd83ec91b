"""An ASGI application that does to another one's answers what its plan says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from workers.faults import NONE, Dice
from workers.http.errors import EdgeError, error_answer

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from workers.faults import Faults
    from workers.spec import EngineName

_GENERATING = ("/v1/completions", "/v1/chat/completions", "/generate")
_FLUSH_SECONDS = 0.005  # a piece written just now has left before its connection is reset
_PIECE_SECONDS = 0.02


class Faulty:
    """Wraps the application of one worker; `cut` resets a client's connection."""

    def __init__(self, app: ASGIApp, engine: EngineName, cut: Callable[[tuple[str, int]], None]) -> None:
        self.dice = Dice(NONE, "http")
        self._idle = True
        self._app = app
        self._engine = engine
        self._cut = cut

    def follow(self, faults: Faults) -> None:
        """Follow a plan from now on."""
        self.dice = Dice(faults, "http")
        self._idle = faults == NONE

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, well or badly."""
        faults = self.dice.faults
        if self._idle or not _concerns(faults, scope["path"]):
            await self._app(scope, receive, send)
            return
        roll = self.dice.roll("refuse_share", "reset", "hang", "endless")
        await asyncio.sleep(faults.slow)
        if faults.status and "refuse_share" in roll:
            await self._refuse(faults.status)(scope, receive, send)
        else:
            await self._spoil(roll, scope, receive, send)

    def _refuse(self, status: int) -> Any:
        kind = "RateLimitError" if status == 429 else "InternalServerError"  # noqa: PLR2004 HTTP's number
        answer = error_answer(self._engine, EdgeError("told to fail", status=status, kind=kind))
        answer.headers = ((b"retry-after", b"1"),) if status in {429, 503} else ()
        return answer

    async def _spoil(self, roll: set[str], scope: Scope, receive: Receive, send: Send) -> None:
        if not roll & {"reset", "hang", "endless"}:
            await self._app(scope, receive, send)
            return
        spoiled = _Spoiled(send, cuts="endless" not in roll)
        await self._app(scope, receive, spoiled)
        if "reset" in roll:
            await asyncio.sleep(_FLUSH_SECONDS)
            self._cut(scope["client"])
        elif "hang" in roll:
            await _gone(receive)
        else:
            await _go_on(receive, send)


def _concerns(faults: Faults, path: str) -> bool:
    return not path.startswith("/_") and (faults.all_routes or path in _GENERATING)


class _Spoiled:
    """Sends an answer without its end: with `cuts` only the first half of the first piece."""

    def __init__(self, send: Send, *, cuts: bool) -> None:
        self._send = send
        self._cuts = cuts
        self._pieces = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = message["headers"]
            if not self._cuts:
                headers = [(name, value) for name, value in headers if name != b"content-length"]
            await self._send({**message, "headers": headers})
            return
        self._pieces += 1
        body = message.get("body", b"")
        if self._cuts:
            body = body[: len(body) // 2] if self._pieces == 1 else b""
        if body:
            await self._send({"type": "http.response.body", "body": body, "more_body": True})


async def _gone(receive: Receive) -> None:
    """Wait for the client to go."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _go_on(receive: Receive, send: Send) -> None:
    """Send blank pieces until the client goes: comments to a reader of events, white space to any other."""
    gone = asyncio.create_task(_gone(receive))
    try:
        while not gone.done():
            await send({"type": "http.response.body", "body": b"\n", "more_body": True})
            await asyncio.wait({gone}, timeout=_PIECE_SECONDS)
    finally:
        gone.cancel()
