"""A client request on its way through the engine: started, watched, and taken back when the client goes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from uuid import uuid4

from workers.engine.request import Request
from workers.engine.sequence import sequence_of

if TYPE_CHECKING:
    from starlette.types import Receive

    from workers.http.ask import Ask
    from workers.http.edge import Edge


class Generation:
    """The engine requests of one client request, and one place to wait for news of any of them."""

    def __init__(self, edge: Edge, ask: Ask) -> None:
        spec = edge.spec
        self.id = ask.rid or uuid4().hex
        self.ask = ask
        self.gone = False
        self._news: asyncio.Future[None] | None = None
        self.requests = [
            Request(
                rid=self.id if index == 0 else f"{self.id}-{index}",
                sequence=sequence_of(tokens, spec.page_size, ask.namespace, bigram=spec.bigram),
                max_new=ask.max_new,
                ends_with=ask.ends_with,
                eager=ask.stream,
                notify=self._notify,
            )
            for index, tokens in enumerate(ask.prompts)
        ]

    @property
    def finished(self) -> bool:
        """Whether every request has ended."""
        return all(request.finish is not None for request in self.requests)

    def start(self) -> None:
        """Hand the requests to the engine."""
        for request in self.requests:
            self.ask.driver.submit(request)

    def cancel(self) -> None:
        """Take back what has not ended."""
        for request in self.requests:
            if request.finish is None:
                self.ask.driver.abort(request)

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
