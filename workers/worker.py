"""One worker put together: ranks, publishers, routes and a server, on ports of its own."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from workers.driver import Driver
from workers.engine.loops import LOOPS
from workers.engine.rank import Rank
from workers.faults import NONE
from workers.http.app import application
from workers.http.edge import Edge
from workers.http.faulty import Faulty
from workers.http.handover import handover_app
from workers.misdeeds import Deeds, report
from workers.ports import bind_again, listen
from workers.publisher import open_publishers
from workers.server import Server, url_of
from workers.tamper import filler

if TYPE_CHECKING:
    import socket

    import zmq

    from workers.faults import Faults
    from workers.publisher import Endpoints, Publisher
    from workers.spec import WorkerSpec
    from workers.tokenizer import Tokenizer


class Worker:
    """A worker that runs on the current event loop between `start` and `close`.

    `edge` and `drivers` are its inside, for tests; `url` and `endpoints` are how it is reached.
    """

    def __init__(
        self,
        spec: WorkerSpec,
        tokenizer: Tokenizer,
        context: zmq.Context[zmq.Socket[bytes]],
        listening: socket.socket,
    ) -> None:
        """`listening` takes the HTTP requests, and is closed when the other ports are taken: OSError."""
        self.spec = spec
        self.endpoints: Endpoints | None = None
        self._publishers: list[Publisher] = []
        self._context = context
        self._faults = NONE
        self._deeds = Deeds()
        self._opening: asyncio.Task[None] | None = None
        self._restarting = asyncio.Lock()
        self.url = url_of(listening)
        try:
            if spec.events is not None and spec.publishes:
                self._publishers, self.endpoints = open_publishers(spec.events, spec.dp, context)
        except OSError:
            listening.close()
            raise
        self.drivers = self._make_drivers(tokenizer)
        self._handover: Server | None = None
        self.edge = Edge(spec, self.drivers, tokenizer, self.endpoints)
        self._faulty = Faulty(application(self.edge, self), spec.engine, self._cut)
        self._server = Server(self._faulty, listening)
        self._tasks: list[asyncio.Task[None]] = []

    def _make_drivers(self, tokenizer: Tokenizer) -> list[Driver]:
        config, shape = self.spec.engine_config(tokenizer.vocabulary), self.spec.shape()
        publishers: list[Publisher | None] = [*self._publishers] or [None] * self.spec.dp
        ranks = [Rank(config) for _ in publishers]
        return [
            Driver(rank, number, publisher, shape, LOOPS[self.spec.loop](rank))
            for number, (rank, publisher) in enumerate(zip(ranks, publishers, strict=True))
        ]

    async def start(self) -> None:
        """Run the ranks and accept requests."""
        if self.spec.faults != NONE:
            self.follow(self.spec.faults)
        self._run_ranks()
        await self._server.start()
        if self.spec.hands_over:
            await self._open_handover()

    async def _open_handover(self) -> None:
        listening = listen(self.spec.host, self.spec.bootstrap_port)
        host = urlsplit(self.url).hostname or self.spec.host
        self.edge.handover_address = (host, listening.getsockname()[1])
        self._handover = Server(handover_app(self.edge.rooms, self.spec.engine), listening)
        await self._handover.start()

    def _cut(self, client: tuple[str, int]) -> None:
        self._server.cut(client)

    def _run_ranks(self) -> None:
        self._tasks = [asyncio.create_task(driver.run()) for driver in self.drivers]
        for task in self._tasks:
            task.add_done_callback(partial(report, message="a rank has stopped"))

    async def close(self) -> None:
        """End all requests, then everything else; raises what a rank's loop has failed with."""
        await self._deeds.close()
        self.edge.gate.set()
        for driver in self.drivers:
            driver.end_all()
        self.edge.rooms.close()
        await self._server.close()
        if self._handover is not None:
            await self._handover.close()
        await self._end_ranks()

    async def _end_ranks(self) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        for publisher in self._publishers:
            await publisher.close()
        for problem in ended:
            if isinstance(problem, Exception):
                raise problem

    def follow(self, faults: Faults) -> None:
        """Misbehave as a plan says from now on; what it has happen once happens in a moment."""
        self._faults = faults
        self._faulty.follow(faults)
        self.edge.hold_pause = faults.hold_pause
        self._break_down()
        if faults.burst:
            self._deeds.do(partial(self._burst, faults))
        if faults.restart:
            self._deeds.do(self._restart)
        if faults.refuse:
            self._deeds.do(partial(self._server.refuse, faults.refuse))
        if faults.half_open:
            self._deeds.do(partial(self._server.half_open, faults.half_open))

    def _break_down(self) -> None:
        """Let the publishers follow the plan in force and no other one; a late one opens later."""
        if self._opening is not None:
            self._opening.cancel()
        for number, publisher in enumerate(self._publishers):
            publisher.break_down(self._faults, number)
        if not self._faults.dead:
            self._opening = self._deeds.do(self._open, after=self._faults.late)

    async def _open(self) -> None:
        for publisher in self._publishers:
            await publisher.open()

    def misdeeds(self) -> dict[str, Any]:
        """Return the plan in force and how often each fault has happened."""
        ranks = [dict(publisher.tamper.dice.counts) for publisher in self._publishers]
        plan = msgspec.to_builtins(self._faults)
        return {"faults": plan, "counts": {"http": dict(self._faulty.dice.counts), "ranks": ranks}}

    async def _burst(self, faults: Faults) -> None:
        for number, publisher in enumerate(self._publishers):
            for _ in range(faults.burst):
                publisher.send(filler(faults.burst_bytes, number))

    async def _restart(self) -> None:
        """Be a new process on the same ports: no cache, no requests, batches numbered from 0."""
        async with self._restarting:
            if self._opening is not None:
                self._opening.cancel()
            self._server.cut()
            await self._end_ranks()
            if self.endpoints is not None and self.spec.events is not None:
                config = self.endpoints.settle(self.spec.events)
                again = partial(open_publishers, config, self.spec.dp, self._context)
                self._publishers, _ = await bind_again(again)
            self._break_down()
            self.drivers = self._make_drivers(self.edge.tokenizer)
            self.edge.restarted(self.drivers)
            self._run_ranks()
            self._server.cut()  # what has come meanwhile waits for ranks that run no more

    def describe(self) -> dict[str, Any]:
        """Return what a script needs to use this worker: URL, and per rank where it publishes and replays."""
        return {
            "url": self.url,
            "engine": self.spec.engine,
            "model": self.spec.model,
            "page_size": self.spec.page_size,
            "tokenizer": self.edge.tokenizer.path,
            "role": self.spec.role,
            "bootstrap_port": self.edge.handover_address and self.edge.handover_address[1],
            "ranks": [self._rank(rank) for rank in range(self.spec.dp)],
        }

    def _rank(self, rank: int) -> dict[str, Any]:
        if self.endpoints is None or self.spec.events is None:
            return {"rank": rank, "kv": None, "replay": None, "load": None}
        host = self.url.split("//")[1].rsplit(":", 1)[0]
        kv, replay = self.endpoints.events(rank), self.endpoints.replay(rank)
        load = self.endpoints.load(rank)
        return {
            "rank": rank,
            "kv": kv.replace("*", host),
            "replay": replay and replay.replace("*", host),
            "load": load and load.replace("*", host),
            "topic": self.spec.events.topic,
        }
