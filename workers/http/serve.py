"""One client request from body to last byte. Whatever ends it, nothing of it stays in the engine."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from workers.http.answer import DONE, Json, end_stream, event, send_piece, start_stream
from workers.http.body import ClientGoneError, parse, read
from workers.http.errors import EdgeError, error_answer
from workers.http.generation import Generation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from starlette.types import Receive, Scope, Send

    from workers.http.ask import Ask
    from workers.http.edge import Edge
    from workers.http.shapes import Shape


@dataclass(slots=True)
class Generate:
    """One generating route, an ASGI application: how its body is read and its answers are written."""

    edge: Edge
    reader: Callable[[Edge, Mapping[str, str], dict[str, Any]], Ask]
    shape: Callable[[Edge, Generation], Shape]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            ask = self.reader(self.edge, Headers(scope=scope), parse(await read(receive)))
        except EdgeError as error:
            await error_answer(self.edge.spec.engine, error)(scope, receive, send)
            return
        except ClientGoneError:
            return
        await self._generate(Generation(self.edge, ask), receive, send)

    async def _generate(self, generation: Generation, receive: Receive, send: Send) -> None:
        watch = asyncio.create_task(generation.watch(receive))
        self.edge.live += 1
        try:
            await self._enter(watch)
            if not generation.gone:
                generation.start()
                await self._answer(generation, send)
        finally:
            self.edge.live -= 1
            watch.cancel()
            generation.cancel()

    async def _enter(self, watch: asyncio.Task[None]) -> None:
        """Wait while the gate is closed: requests hang during a pause, none is refused."""
        while not (self.edge.gate.is_set() or watch.done()):
            opening = asyncio.create_task(self.edge.gate.wait())
            await asyncio.wait({opening, watch}, return_when=asyncio.FIRST_COMPLETED)
            opening.cancel()

    async def _answer(self, generation: Generation, send: Send) -> None:
        shape = self.shape(self.edge, generation)
        if generation.ask.stream:
            await _stream(self.edge, generation, shape, send)
            return
        while not (generation.finished or generation.gone):
            await generation.news()
        if generation.error is not None:
            await error_answer(self.edge.spec.engine, _failed(generation.error)).send(send)
        elif not generation.gone:
            generation.offer()
            await Json(shape.whole()).send(send)


def _failed(why: str) -> EdgeError:
    return EdgeError(why, status=500, kind="InternalServerError")


async def _stream(edge: Edge, generation: Generation, shape: Shape, send: Send) -> None:
    progress = Progress(generation, shape)
    await start_stream(send)
    opening = shape.opening()
    while not (progress.complete or generation.gone):
        if events := progress.events():
            await send_piece(send, b"".join(map(event, opening + events)))
            opening = []
        else:
            await generation.news()
    if generation.error is not None:
        said = error_answer(edge.spec.engine, _failed(generation.error)).value
        await end_stream(send, event(said if "error" in said else {"error": said}) + DONE)
    elif not generation.gone:
        await end_stream(send, b"".join(map(event, shape.closing())) + DONE)


class Progress:
    """How much of each request has been sent."""

    def __init__(self, generation: Generation, shape: Shape) -> None:
        self._requests = generation.requests
        self._shape = shape
        self._sent = [0] * len(generation.requests)
        self._ended = [False] * len(generation.requests)

    @property
    def complete(self) -> bool:
        """Whether the end of every request has been sent."""
        return all(self._ended)

    def events(self) -> list[Any]:
        """Return the events for all that is new, and count it as sent."""
        events: list[Any] = []
        for index, request in enumerate(self._requests):
            fresh = request.output[self._sent[index] :]
            if not self._ended[index] and (fresh or request.finish):
                self._sent[index] += len(fresh)
                self._ended[index] = request.finish is not None
                events += self._shape.piece(index, fresh, request.finish)
        return events
