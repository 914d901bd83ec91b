"""One worker put together: ranks, publishers, routes and a server, on ports of its own."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from time import monotonic
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
from workers.ports import listen
from workers.publisher import open_publishers
from workers.server import Server, url_of
from workers.tamper import filler

if TYPE_CHECKING:
    import socket
    from collections.abc import Coroutine

    import zmq

    from workers.faults import Faults
    from workers.publisher import Endpoints, Publisher, PublisherConfig
    from workers.spec import WorkerSpec
    from workers.tokenizer import Tokenizer

_ANSWER_SECONDS = 0.02  # the answer to the one who asked for a fault leaves before it happens
_REBIND_SECONDS = 5.0
_RETRY_SECONDS = 0.01


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
        self._deeds: set[asyncio.Task[None]] = set()
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
        self._handover = Server(handover_app(self.edge.rooms), listening)
        await self._handover.start()

    def _cut(self, client: tuple[str, int]) -> None:
        self._server.cut(client)

    def _run_ranks(self) -> None:
        self._tasks = [asyncio.create_task(driver.run()) for driver in self.drivers]
        for task in self._tasks:
            task.add_done_callback(_report)

    async def close(self) -> None:
        """End all requests, then everything else; raises what a rank's loop has failed with."""
        for deed in self._deeds:
            deed.cancel()
        await asyncio.gather(*self._deeds, return_exceptions=True)
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
        for number, publisher in enumerate(self._publishers):
            publisher.break_down(faults, number)
        if faults.late:
            self._do(self._open_late(faults))
        if faults.burst:
            self._do(self._burst(faults))
        if faults.restart:
            self._do(self._restart(faults))
        if faults.refuse:
            self._do(self._server.refuse(faults.refuse))
        if faults.half_open:
            self._do(self._server.half_open(faults.half_open))

    def misdeeds(self) -> dict[str, Any]:
        """Return the plan in force and how often each fault has happened."""
        ranks = [dict(publisher.tamper.dice.counts) for publisher in self._publishers]
        plan = msgspec.to_builtins(self._faults)
        return {"faults": plan, "counts": {"http": dict(self._faulty.dice.counts), "ranks": ranks}}

    def _do(self, deed: Coroutine[Any, Any, None]) -> None:
        async def in_a_moment() -> None:
            await asyncio.sleep(_ANSWER_SECONDS)
            await deed

        task = asyncio.create_task(in_a_moment())
        self._deeds.add(task)
        task.add_done_callback(self._deeds.discard)

    async def _open_late(self, faults: Faults) -> None:
        await asyncio.sleep(faults.late)
        for number, publisher in enumerate(self._publishers):
            publisher.break_down(faults.lasting(), number)

    async def _burst(self, faults: Faults) -> None:
        for number, publisher in enumerate(self._publishers):
            for _ in range(faults.burst):
                publisher.send(filler(faults.burst_bytes, number))

    async def _restart(self, faults: Faults) -> None:
        """Be a new process on the same ports: no cache, no requests, batches numbered from 0."""
        self._server.cut()
        await self._end_ranks()
        if self.endpoints is not None and self.spec.events is not None:
            self._publishers = await self._publish_again(self.endpoints.settle(self.spec.events))
        for number, publisher in enumerate(self._publishers):
            publisher.break_down(faults.lasting(), number)
        self.drivers = self._make_drivers(self.edge.tokenizer)
        self.edge.restarted(self.drivers)
        self._run_ranks()

    async def _publish_again(self, config: PublisherConfig) -> list[Publisher]:
        """Bind the same ports, which the closed sockets give back a moment later."""
        deadline = monotonic() + _REBIND_SECONDS
        while monotonic() < deadline:
            with suppress(OSError):
                return open_publishers(config, self.spec.dp, self._context)[0]
            await asyncio.sleep(_RETRY_SECONDS)
        return open_publishers(config, self.spec.dp, self._context)[0]

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
