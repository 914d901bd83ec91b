"""SGLang's load socket, over real ZMQ: what it says, when, and where it is found."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
import zmq
import zmq.asyncio

from tests.workers.edge import Edge, one, until
from tests.workers.engine.playbook import Playbook
from tests.workers.process import started
from workers.engine.load import LoadReport, load_of
from workers.engine.timing import Profile
from workers.publisher import PublisherConfig

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

PROMPT = list(range(40))
LOADS = PublisherConfig(load_port=0)


@asynccontextmanager
async def _loads(edge: Edge, rank: int = 0) -> AsyncIterator[list[tuple[bytes, int, list[Any]]]]:
    """Collect topic, number and LoadStat of what a rank sends, from the first that is heard."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.SUB)
    socket.subscribe(b"load")
    socket.connect(edge.worker.describe()["ranks"][rank]["load"])
    heard: list[tuple[bytes, int, list[Any]]] = []

    async def read() -> None:
        while True:
            topic, number, payload = await socket.recv_multipart()
            heard.append((topic, int.from_bytes(number, "big"), msgspec.msgpack.decode(payload)))

    reading = asyncio.create_task(read())

    async def reached() -> bool:
        await edge.complete(PROMPT, routed_dp_rank=rank)
        return heard != []

    try:
        await until(reached)
        yield heard
    finally:
        reading.cancel()
        socket.close(linger=0)
        context.term()


async def test_a_rank_says_what_v1_loads_says_of_it() -> None:
    async with one(events=LOADS, dp=2, max_running=7) as edge, _loads(edge, 1) as heard:
        await edge.complete(list(range(1000, 1200)), 30, routed_dp_rank=1)
        told = (await edge.get("/v1/loads")).json()["loads"][1]
        await until(lambda: heard[-1][2][9] == told["total_prefill_uncached_tokens"] and heard[-1][2][1] == 0)
        topic, _, stat = heard[-1]
        assert (topic, stat[0], stat[5]) == (b"load", "LoadStat", 1)
        names = (
            "num_running_reqs",
            "num_waiting_reqs",
            "num_used_tokens",
            "max_total_num_tokens",
            "dp_rank",
            "num_waiting_uncached_tokens",
            "num_total_tokens",
            "max_running_requests",
            "total_prefill_uncached_tokens",
            "total_prefill_busy_us",
        )
        assert stat[1:] == [told[name] for name in names]
        assert told["max_running_requests"] == 7
        assert [number for _, number, _ in heard] == list(range(heard[0][1], heard[-1][1] + 1))


async def test_server_info_says_where_loads_are_only_if_there_are_any() -> None:
    async with one(events=LOADS, dp=2) as edge:
        info = (await edge.get("/server_info")).json()["kv_events"]
        assert info["load_topic"] == "load"
        assert edge.worker.describe()["ranks"][1]["load"].endswith(f":{info['load_endpoint_port_base'] + 1}")
    async with one() as edge:
        info = (await edge.get("/server_info")).json()["kv_events"]
        assert not {"load_topic", "load_endpoint_port_base"} & set(info)
        assert edge.worker.describe()["ranks"][0]["load"] is None


async def test_loads_are_numbered_from_0_on_the_same_port_after_a_restart() -> None:
    async with one(events=LOADS) as edge, _loads(edge) as heard:
        for _ in range(40):
            await edge.complete(PROMPT)
        began, before = edge.worker.edge.started, edge.worker.describe()
        await edge.post("/_faults", {"restart": True})
        await until(lambda: edge.worker.edge.started > began)
        assert edge.worker.describe() == before

        await until(lambda: _restarted(edge, heard))


async def _restarted(edge: Edge, heard: list[tuple[bytes, int, list[Any]]]) -> bool:
    """Have a load sent; say whether the numbers have begun again."""
    await edge.complete(PROMPT)
    numbers = [number for _, number, _ in heard]
    return any(later < earlier for earlier, later in pairwise(numbers))


def test_the_command_line_opens_it() -> None:
    with started("serve", "--load-port", "0") as process:
        assert process.workers[0]["ranks"][0]["load"].startswith("tcp://127.0.0.1:")


def test_a_load_is_due_after_a_prefill_after_five_decode_steps_and_before_a_wait() -> None:
    play = Playbook(page_size=4, profile=Profile(0.030, 0.001, 0.010))
    report = LoadReport(play.rank, 3)
    assert report.due(waits=True) is not None
    assert report.due(waits=True) is None
    request = play.request(range(50), max_new=21)
    due: list[int] = []
    while request.finish is None:
        waits = not play.iterate()
        if report.due(waits=waits) is not None:
            due.append(len(request.output))
    assert due == [1, 6, 11, 16, 21]
    play.settle()
    load = load_of(play.rank)
    assert (load.running, load.used_tokens, load.prefilled_tokens) == (0, 0, 50)
    assert load.prefill_busy_us == 80_000


def test_tokens_that_wait_are_counted_with_and_without_what_is_cached() -> None:
    play = Playbook(page_size=4, max_running=1)
    play.request(range(50), max_new=30)
    play.iterate()
    play.request(range(100, 120))
    play.iterate()
    load = load_of(play.rank)
    assert (load.running, load.waiting, load.waiting_uncached) == (1, 1, 20)
    assert load.total_tokens == load.used_tokens + 20
    assert load.used_tokens >= 48
