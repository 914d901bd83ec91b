"""Where a prefill worker hands prompts over: SGLang's bootstrap server, vLLM's side channel.

`POST /handover {"room": n}` is what a decode worker asks SGLang's with, and `{"id": "..."}` vLLM's. It is
answered once the KV has arrived. Whoever goes away first, the other side is told.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.routing import Route

from workers.engine import control
from workers.http.answer import Json
from workers.http.body import parse, read

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from workers.driver import Driver
    from workers.engine.request import Request

_KEPT_SECONDS = 480.0  # vLLM's VLLM_NIXL_ABORT_REQUEST_TIMEOUT


@dataclass(slots=True, eq=False)
class Room:
    """One prompt to hand over: `driver` and `request` once it has come, `done` with the answer."""

    done: asyncio.Future[dict[str, Any]] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    driver: Driver | None = None
    request: Request | None = None
    asked: bool = False
    expiry: asyncio.TimerHandle | None = None

    def begin(self, key: int) -> None:
        """Let the prompt be computed if both sides are there."""
        if self.asked and self.driver is not None:
            rank = self.driver.rank
            self.driver.post(lambda _now: rank.prefill.ask(rank, key) if rank.prefill else None)

    def fail(self, why: str) -> None:
        """Tell both sides that nothing will come of it."""
        if not self.done.done():
            self.done.set_result({"error": why})
        if self.driver is not None and self.request is not None:
            driver, request = self.driver, self.request
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
        room.driver, room.request = driver, request
        room.begin(request.room)
        loop = asyncio.get_running_loop()
        room.expiry = loop.call_later(self._patience, self._expire, request.room, room)

    def _expire(self, key: int, room: Room) -> None:
        if self._rooms.get(key) is room and not room.asked:
            room.fail(f"nobody asked for bootstrap room {key} in time")

    def leave(self, request: Request) -> None:
        """Note that a prompt has been handed over, or never will be; SGLang."""
        room = None if request.room is None else self._rooms.pop(request.room, None)
        if room is not None and room.expiry is not None:
            room.expiry.cancel()
        if room is not None and not room.done.done():
            good = request.finish == "length"
            answer = {"cached_tokens": request.cached_tokens} if good else {"error": "prefill failed"}
            room.done.set_result(answer)

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
            return {"error": f"no such request: {key}"}
        kept = self._offers.pop(key)
        kept.expiry.cancel()
        try:
            await asyncio.sleep(self._transfer_seconds(kept.request.prompt_tokens))
        finally:
            self.let_go(kept.driver, kept.request)
        return {"cached_tokens": None}

    async def ask(self, key: int, receive: Receive) -> dict[str, Any]:
        """Return when a room's KV has arrived, or an error; who asks may go away meanwhile."""
        room = self._rooms.setdefault(key, Room())
        room.asked = True
        room.begin(key)
        gone = asyncio.create_task(_gone(receive))
        either: set[asyncio.Future[Any]] = {room.done, gone}
        await asyncio.wait(either, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
        if not room.done.done():
            self._rooms.pop(key, None)
            room.fail("the decode worker has gone" if gone.done() else "no prompt came in time")
        return room.done.result()

    def close(self) -> None:
        """Drop everything, so that nothing waits for a timer."""
        for kept in self._offers.values():
            kept.expiry.cancel()
        for room in list(self._rooms.values()):
            room.fail("the prefill worker has gone")


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@dataclass(slots=True)
class _Handover:
    rooms: Rooms

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = parse(await read(receive))
        if "room" in asked:
            answer = await self.rooms.ask(asked["room"], receive)
        else:
            answer = await self.rooms.take(str(asked.get("id")))
        await Json(answer, 500 if "error" in answer else 200)(scope, receive, send)


def handover_app(rooms: Rooms) -> Starlette:
    """Return the application that a prefill worker serves on its second port."""
    return Starlette(routes=[Route("/handover", _Handover(rooms), methods=["POST"])])
