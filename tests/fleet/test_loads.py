"""Engines' words on their load: asked for in turn, listened to, and forgotten when they are old."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import zmq

from router.core.ledger import Ledger
from router.core.word import EngineLoad
from router.fleet.snapshot import snapshot
from router.fleet.spec import WorkerSpec
from tests.engines.scripted import Answer, ScriptedWorker, scripted
from tests.fleet.test_fleet import fleet_with, sglang
from tests.waiting import until
from workers.engine.load import Load

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from router.core.rank import Rank
    from router.fleet.fleet import Fleet


def loads(running: int) -> dict[str, Answer]:
    row = {
        "dp_rank": 0,
        "num_running_reqs": running,
        "num_waiting_reqs": 1,
        "num_waiting_uncached_tokens": 700,
    }
    return {"/v1/loads": Answer({"loads": [{**row, "token_usage": 0.5, "max_total_num_tokens": 9000}]})}


@asynccontextmanager
async def watched(*workers: ScriptedWorker, seconds: float = 0.02) -> AsyncIterator[Fleet]:
    """Run a fleet that asks its workers so often; all of them are ready."""
    async with fleet_with(*(WorkerSpec(worker.url) for worker in workers), load_seconds=seconds) as fleet:
        await until(lambda: len(fleet.route("tiny").ranks) == len(workers) if fleet.ready else False)
        yield fleet


def rank_of(fleet: Fleet, worker: ScriptedWorker) -> Rank:
    return fleet.workers[worker.url].ranks[0]


async def test_an_answer_is_entered_and_shown() -> None:
    async with scripted(sglang() | loads(4)) as (worker, _), watched(worker) as fleet:
        rank = rank_of(fleet, worker)
        await until(lambda: rank.load.others_requests == 5)
        assert (rank.load.others_tokens, rank.load.usage, rank.load.capacity_tokens) == (700, 0.5, 9000)
        (row,) = snapshot(fleet.workers.values())
        assert row.ranks[0].engine is not None
        assert (row.ranks[0].engine.by, row.ranks[0].engine.running) == ("answer", 4)
        worker.routes |= loads(2)
        await until(lambda: rank.load.others_requests == 3)


async def test_what_an_engine_says_of_our_own_requests_is_ours() -> None:
    async with scripted(sglang() | loads(4)) as (worker, _), watched(worker) as fleet:
        rank, ledger = rank_of(fleet, worker), Ledger()
        tickets = [ledger.open(rank.load, 300) for _ in range(3)]
        await until(lambda: (rank.load.active_requests, rank.load.inflight_tokens) == (5, 900))
        for ticket in tickets:
            ticket.close()
        await until(lambda: (rank.load.active_requests, rank.load.inflight_tokens) == (5, 700))


async def test_a_worker_that_does_not_say_is_left_alone() -> None:
    async with (
        scripted(sglang()) as (worker, _),
        scripted(sglang() | loads(1)) as (other, _),
        watched(worker, other) as fleet,
    ):
        await until(lambda: rank_of(fleet, other).said is not None)
        before = rank_of(fleet, other).said
        worker.routes |= loads(9)
        await until(lambda: rank_of(fleet, other).said is not before)
        assert rank_of(fleet, worker).said is None


async def test_words_that_have_become_old_are_forgotten() -> None:
    async with scripted(sglang() | loads(4)) as (worker, _), watched(worker) as fleet:
        rank = rank_of(fleet, worker)
        await until(lambda: rank.load.others_requests == 5)
        worker.routes["/v1/loads"] = Answer(status=500)
        await until(lambda: rank.said is None)
        assert (rank.load.others_requests, rank.load.others_tokens, rank.load.usage) == (0, 0, 0.0)


async def test_nobody_is_asked_with_the_setting_off() -> None:
    async with scripted(sglang() | loads(4)) as (worker, _), watched(worker, seconds=0) as fleet:
        assert not any("LoadWatch" in repr(task) for task in fleet._tasks)
        assert rank_of(fleet, worker).said is None


async def test_a_load_socket_is_heard_also_when_its_address_changes() -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    first, second = context.socket(zmq.PUB), context.socket(zmq.PUB)
    ports = [socket.bind_to_random_port("tcp://127.0.0.1") for socket in (first, second)]

    def info(port: int) -> dict[str, Answer]:
        events = {"publisher": "zmq", "endpoint_port_base": ports[0], "topic": "kv", "block_size": 4}
        return sglang(kv_events={**events, "load_endpoint_port_base": port, "load_topic": "load"})

    def say(socket: zmq.Socket[bytes], running: int) -> None:
        socket.send_multipart([b"load", bytes(8), b"\xc1"])
        socket.send_multipart([b"load", bytes(8), Load(running, 0, 0, 100, 0, 0, 0, 0, 0).stat(7)])
        socket.send_multipart([b"load", bytes(8), Load(running, 0, 25, 100, 0, 0, 0, 0, 0).stat(0)])

    def heard(socket: zmq.Socket[bytes], running: int) -> bool:
        say(socket, running)
        said = rank.said
        return said is not None and said.load == EngineLoad(running, 0, 0, 0.25, 100) and said.by == "socket"

    try:
        async with scripted(info(ports[0])) as (worker, _), watched(worker) as fleet:
            rank = rank_of(fleet, worker)
            await until(lambda: heard(first, 3))
            worker.routes |= info(ports[1])
            await until(lambda: (fleet.workers[worker.url].renew(), heard(second, 5))[1])
    finally:
        context.destroy(linger=0)
