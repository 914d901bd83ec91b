"""One worker put together: ranks, publishers, routes and a server, on ports of its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from workers.driver import Driver
from workers.engine.rank import Rank
from workers.http.app import application
from workers.http.edge import Edge
from workers.ports import listen
from workers.publisher import open_publishers
from workers.server import Server, url_of

if TYPE_CHECKING:
    import zmq

    from workers.publisher import Endpoints, Publisher
    from workers.spec import WorkerSpec
    from workers.tokenizer import Tokenizer


class Worker:
    """A worker that runs on the current event loop between `start` and `close`.

    `edge` and `drivers` are its inside, for tests; `url` and `endpoints` are how it is reached.
    """

    def __init__(
        self, spec: WorkerSpec, tokenizer: Tokenizer, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        self.spec = spec
        self.endpoints: Endpoints | None = None
        self._publishers: list[Publisher] = []
        listening = listen(spec.host, spec.port)
        self.url = url_of(listening)
        try:
            if spec.events is not None:
                self._publishers, self.endpoints = open_publishers(spec.events, spec.dp, context)
        except OSError:
            listening.close()
            raise
        self.drivers = self._make_drivers(tokenizer)
        self.edge = Edge(spec, self.drivers, tokenizer, self.endpoints)
        self._server = Server(application(self.edge), listening)
        self._tasks: list[asyncio.Task[None]] = []

    def _make_drivers(self, tokenizer: Tokenizer) -> list[Driver]:
        config, shape = self.spec.engine_config(tokenizer.vocabulary), self.spec.shape()
        publishers: list[Publisher | None] = [*self._publishers] or [None] * self.spec.dp
        return [Driver(Rank(config), number, publisher, shape) for number, publisher in enumerate(publishers)]

    async def start(self) -> None:
        """Run the ranks and accept requests."""
        self._tasks = [asyncio.create_task(driver.run()) for driver in self.drivers]
        for task in self._tasks:
            task.add_done_callback(_report)
        await self._server.start()

    async def close(self) -> None:
        """End all requests, then everything else; raises what a rank's loop has failed with."""
        self.edge.gate.set()
        for driver in self.drivers:
            driver.end_all()
        await self._server.close()
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for publisher in self._publishers:
            await publisher.close()
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem

    def describe(self) -> dict[str, Any]:
        """Return what a script needs to use this worker: URL, and per rank where it publishes and replays."""
        return {
            "url": self.url,
            "engine": self.spec.engine,
            "model": self.spec.model,
            "page_size": self.spec.page_size,
            "tokenizer": self.edge.tokenizer.path,
            "ranks": [self._rank(rank) for rank in range(self.spec.dp)],
        }

    def _rank(self, rank: int) -> dict[str, Any]:
        if self.endpoints is None or self.spec.events is None:
            return {"rank": rank, "kv": None, "replay": None}
        host = self.url.split("//")[1].rsplit(":", 1)[0]
        kv, replay = self.endpoints.events(rank), self.endpoints.replay(rank)
        return {
            "rank": rank,
            "kv": kv.replace("*", host),
            "replay": replay and replay.replace("*", host),
            "topic": self.spec.events.topic,
        }


def _report(task: asyncio.Task[None]) -> None:
    """Say at once that a rank's loop has failed: its requests would hang without a word."""
    if not task.cancelled() and (problem := task.exception()) is not None:
        task.get_loop().call_exception_handler({"message": "a rank has stopped", "exception": problem})
