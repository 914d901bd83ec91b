"""Where a prefill worker hands prompts over: SGLang's bootstrap server, vLLM's side channel.

`POST /handover {"room": n}` is what a decode worker asks SGLang's with, and `{"id": "..."}` vLLM's. It is
answered once the KV has arrived. Whoever goes away first, the other side is told.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Route

from workers.engine import control
from workers.http.answer import Json
from workers.http.body import ClientGoneError, integer, parse, read, string
from workers.http.errors import BadRequest, EdgeError, error_answer
from workers.http.pair import MOST_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from workers.driver import Driver
    from workers.engine.request import Request
    from workers.spec import EngineName

_KEPT_SECONDS = 480.0  # vLLM's VLLM_NIXL_ABORT_REQUEST_TIMEOUT


@dataclass(slots=True, eq=False)
class Room:
    """One prompt to hand over: `driver` and `request` once it has come, `done` with the answer.

    A room in which one side has failed before the other came stays, so that the other hears why.
    """

    done: asyncio.Future[dict[str, Any]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    driver: Driver | None = None
    request: Request | None = None
    asked: bool = False
    expiry: asyncio.TimerHandle | None = None

    @property
    def failed(self) -> str | None:
        """Why nothing will come of it, if that is so."""
        return self.done.result().get("error") if self.done.done() else None

    def begin(self, key: int) -> None:
        """Let the prompt be computed if both sides are there."""
        if self.asked and self.driver is not None:
            rank = self.driver.rank
            self.driver.post(lambda _now: rank.prefill.ask(key) if rank.prefill else None)

    def fail(self, why: str) -> None:
        """Tell both sides that nothing will come of it; the first reason counts."""
        if not self.done.done():
            self.done.set_result({"error": why})
        if self.driver is not None and self.request is not None:
            _fail(self.driver, self.request, why)


def _fail(driver: Driver, request: Request, why: str) -> None:
    driver.post(lambda _now: control.fail(driver.rank, request, why))


@dataclass(frozen=True, slots=True)
class Offer:
    """A prompt whose KV is kept until it is fetched, or until `expiry`."""

    driver: Driver
    request: Request
    expiry: asyncio.TimerHandle


class Rooms:
    """The prompts of one prefill worker. Nobody waits longer than `patience` seconds for the other side."""

    def __init__(self, patience: float, transfer_seconds: Callable[[int], float]) -> None:
        self._patience = patience
        self._transfer_seconds = transfer_seconds
        self._rooms: dict[int, Room] = {}
        self._offers: dict[str, Offer] = {}

    def enter(self, driver: Driver, request: Request) -> None:
        """Note that a prompt has come; SGLang."""
        if request.room is None:
            return
        room = self._rooms.setdefault(request.room, Room())
        if room.request is not None:
            _fail(driver, request, f"bootstrap room {request.room} is in use")
        elif room.failed is not None:
            self._drop(request.room, room)
            _fail(driver, request, room.failed)
        else:
            room.driver, room.request = driver, request
            room.begin(request.room)
            self._expire_later(request.room, room)

    def _expire_later(self, key: int, room: Room) -> None:
        if room.expiry is not None:
            room.expiry.cancel()
        room.expiry = asyncio.get_running_loop().call_later(self._patience, self._expire, key, room)

    def _expire(self, key: int, room: Room) -> None:
        """Give up a prompt that nobody has asked for, or forget a failure that nobody has asked about."""
        if room.done.done():
            self._drop(key, room)
        elif not room.asked:
            room.fail(f"nobody asked for bootstrap room {key} within {self._patience:g} s")

    def _drop(self, key: int, room: Room) -> None:
        if self._rooms.get(key) is room:
            del self._rooms[key]
        if room.expiry is not None:
            room.expiry.cancel()

    def sent(self, request: Request, end: float) -> None:
        """Note that a prompt's KV will have travelled at `end` (monotonic seconds); SGLang.

        The decode worker has it then, whatever the scheduler that sent it does.
        """
        asyncio.get_running_loop().call_later(max(0.0, end - monotonic()), self._arrived, request)

    def _arrived(self, request: Request) -> None:
        room = None if request.room is None else self._rooms.get(request.room)
        if room is not None and room.request is request and not room.done.done():
            room.done.set_result({"cached_tokens": request.cached_tokens})

    def leave(self, request: Request) -> None:
        """Note that a prompt has been handed over, or never will be; SGLang."""
        room = None if request.room is None else self._rooms.get(request.room)
        if room is None or room.request is not request or request.room is None:
            return
        room.driver = room.request = None
        if not room.done.done():
            good = request.finish == "length"
            room.done.set_result(
                {"cached_tokens": request.cached_tokens} if good else {"error": _why(request)}
            )
        if room.asked:
            self._drop(request.room, room)
        else:
            self._expire_later(request.room, room)

    def offer(self, driver: Driver, request: Request) -> None:
        """Keep a computed prompt until it is asked for; vLLM."""
        loop = asyncio.get_running_loop()
        expiry = loop.call_later(_KEPT_SECONDS, self._forget, driver, request)
        self._offers[request.rid] = Offer(driver, request, expiry)

    def _forget(self, driver: Driver, request: Request) -> None:
        self._offers.pop(request.rid, None)
        self.let_go(driver, request)

    def let_go(self, driver: Driver, request: Request) -> None:
        """Give a kept prompt's KV back; vLLM."""
        driver.post(lambda _now: control.fetched(driver.rank, request))

    async def take(self, key: str) -> dict[str, Any]:
        """Return when an offered prompt has travelled; vLLM."""
        if key not in self._offers:
            return {"error": f"no KV is kept for request {key}: fetched already, given up, or never here"}
        kept = self._offers.pop(key)
        kept.expiry.cancel()
        try:
            await asyncio.sleep(self._transfer_seconds(kept.request.prompt_tokens))
        finally:
            self.let_go(kept.driver, kept.request)
        return {"cached_tokens": None}

    async def ask(self, key: int, receive: Receive) -> dict[str, Any]:
        """Return when a room's KV has arrived, or an error; who asks may go away meanwhile; SGLang."""
        room = self._rooms.setdefault(key, Room())
        if room.asked:
            return {"error": f"bootstrap room {key} has been asked for already"}
        room.asked = True
        room.begin(key)
        gone = asyncio.create_task(_gone(receive))
        either: set[asyncio.Future[Any]] = {room.done, gone}
        try:
            await asyncio.wait(either, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        return self._answer(key, room, left=gone.done())

    def _answer(self, key: int, room: Room, *, left: bool) -> dict[str, Any]:
        """Return what became of a room that was asked for; a failure is kept for a prompt still to come."""
        fresh = not room.done.done()
        if fresh:
            late = f"the prompt of bootstrap room {key} was not here within {self._patience:g} s"
            room.fail("the decode worker has gone" if left else late)
        if fresh and room.request is None:
            room.asked = False
            self._expire_later(key, room)
        elif room.request is None:
            self._drop(key, room)
        return room.done.result()

    def close(self) -> None:
        """Drop everything, so that nothing waits for a timer."""
        for kept in self._offers.values():
            kept.expiry.cancel()
        self._offers.clear()
        for key, room in list(self._rooms.items()):
            room.fail("the prefill worker has gone")
            self._drop(key, room)


def _why(request: Request) -> str:
    """Return why a prompt was not handed over."""
    if request.error is not None:
        return request.error
    aborted = "the prompt was aborted on the prefill worker"
    return aborted if request.finish == "abort" else "the client of the prefill worker has gone"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True)
class _Handover:
    rooms: Rooms
    engine: EngineName

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(parse(await read(receive)), receive)
        except EdgeError as error:
            answer = error_answer(self.engine, error)
        except ClientGoneError:
            return
        await answer(scope, receive, send)

    async def _answer(self, asked: dict[str, Any], receive: Receive) -> Json:
        if self.engine == "sglang":
            room = integer(asked, "room", None, least=0, most=MOST_ROOM)
            if room is None:
                raise BadRequest("room is required", param="room")
            told = await self.rooms.ask(room, receive)
        else:
            key = string(asked, "id")
            if key is None:
                raise BadRequest("id is required", param="id")
            told = await self.rooms.take(key)
        return Json(told, 500 if "error" in told else 200)


def handover_app(rooms: Rooms, engine: EngineName) -> Starlette:
    """Return the application that a worker serves on its second port."""
    return Starlette(routes=[Route("/handover", _Handover(rooms, engine), methods=["POST"])])
