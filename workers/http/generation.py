"""A client request on its way through the engine: started, watched, and taken back when the client goes."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from workers.engine import control
from workers.engine.request import Request
from workers.engine.sequence import sequence_of
from workers.http.client import CallFailed, call

if TYPE_CHECKING:
    from starlette.types import Receive

    from workers.http.ask import Ask
    from workers.http.edge import Edge
    from workers.http.pair import Pair


_ANSWER_SECONDS = 1.0  # the other half, which waits as long as this one, is heard before it is given up


class Generation:
    """The engine requests of one client request, and one place to wait for news of any of them."""

    def __init__(self, edge: Edge, ask: Ask) -> None:
        spec = edge.spec
        self.id = ask.rid or uuid4().hex
        self.ask = ask
        self.gone = False
        self._rooms = edge.rooms
        self._patience = spec.pair_seconds + _ANSWER_SECONDS
        self._offered = False
        self._pulls: list[asyncio.Task[None]] = []
        self._news: asyncio.Future[None] | None = None
        self.requests = [
            Request(
                rid=self.id if index == 0 else f"{self.id}-{index}",
                sequence=sequence_of(tokens, spec.page_size, ask.namespace, bigram=spec.bigram),
                max_new=ask.max_new,
                ends_with=ask.ends_with,
                eager=ask.stream,
                notify=self._notify,
                ignores_cache=ask.ignores_cache,
                reports_hits=ask.reports_hits,
                session_id=ask.session_id,
                room=pair.room,
                remote=pair.address is not None,
                keeps_kv=pair.offers,
            )
            for index, (tokens, pair) in enumerate(zip(ask.prompts, ask.pairs, strict=True))
        ]
        for request, pair in zip(self.requests, ask.pairs, strict=True):
            request.sends = partial(self._rooms.sent, request)
            if pair.address is not None:
                request.pull = partial(self._pull, request, pair)

    @property
    def finished(self) -> bool:
        """Whether every request has ended."""
        return all(request.finish is not None for request in self.requests)

    @property
    def error(self) -> str | None:
        """Why a request failed that its client did not take back."""
        return next((request.error for request in self.requests if request.error is not None), None)

    def start(self) -> None:
        """Hand the requests to the engine."""
        for request in self.requests:
            self.ask.driver.submit(request)
            if self.ask.driver.rank.prefill is not None:
                self._rooms.enter(self.ask.driver, request)

    def _pull(self, request: Request, pair: Pair) -> None:
        self._pulls.append(asyncio.create_task(self._fetch(request, pair)))

    async def _fetch(self, request: Request, pair: Pair) -> None:
        """Wait until the prefill worker has sent a prompt's KV, and tell the rank what has become of it."""
        rank = self.ask.driver.rank
        if pair.address is None or pair.question is None:
            return
        try:
            told = await call(pair.address, pair.question, self._patience)
        except CallFailed as error:
            why = f"KV transfer failed: {error}"
            self.ask.driver.post(lambda _now: control.fail(rank, request, why))
            return
        self.ask.driver.post(lambda _now: control.arrive(rank, request, told.cached_tokens))

    def offer(self) -> None:
        """Keep the prompts for the worker that will decode them, if there is to be one (vLLM)."""
        self._offered = True
        for request in self.requests:
            if request.keeps_kv and request.finish == "length":
                self._rooms.offer(self.ask.driver, request)

    def cancel(self) -> None:
        """Take back what has not ended."""
        for pull in self._pulls:
            pull.cancel()
        for request in self.requests:
            if self.ask.driver.rank.prefill is not None:
                self._rooms.leave(request)
            if request.finish is None:
                self.ask.driver.abort(request)
            elif request.keeps_kv and not self._offered:
                self._rooms.let_go(self.ask.driver, request)

    async def news(self) -> None:
        """Wait until a request has a new token or has ended, or the client is gone."""
        self._news = asyncio.get_running_loop().create_future()
        await self._news

    def _notify(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    async def watch(self, receive: Receive) -> None:
        """Wait for the client to go."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone = True
        self._notify()
