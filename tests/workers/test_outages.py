"""Plans of faults that overlap in time: outages add up, and a newer plan is never undone by an older one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.waiting import until_awaited
from tests.workers.edge import Edge, one, until
from tests.workers.process import started
from workers.faults import Faults

if TYPE_CHECKING:
    from workers.publisher import Publisher

PROMPT = list(range(40))


async def _healthy(edge: Edge) -> bool:
    try:
        return bool((await edge.get("/health")).status_code == 200)
    except httpx2.TransportError:
        return False


def _publisher(edge: Edge) -> Publisher:
    publisher = edge.worker.drivers[0].publisher
    assert publisher is not None
    return publisher


@pytest.mark.parametrize(
    "plans",
    [
        [{"refuse": 0.3}, {"refuse": 0.1}],
        [{"refuse": 0.1}, {"refuse": 0.3}],
        [{"half_open": 0.3}, {"half_open": 0.1}],
        [{"half_open": 0.3}, {"refuse": 0.1}],
        [{"refuse": 0.3}, {"half_open": 0.1}],
        [{"refuse": 0.1, "half_open": 0.3}],
        [{"refuse": 0.2}, {"half_open": 0.2}, {"restart": True}, {"refuse": 0.2, "half_open": 0.3}],
    ],
    ids=str,
)
@pytest.mark.parametrize("by_flag", [True, False])
async def test_outages_that_overlap_end_with_the_last_of_them(
    plans: list[dict[str, Any]], by_flag: bool, caplog: pytest.LogCaptureFixture
) -> None:
    first, later = (Faults(**plans[0]), plans[1:]) if by_flag else (Faults(), plans)
    async with one(faults=first) as edge:
        for plan in later:
            edge.worker.follow(Faults(**plan))
        server = edge.worker._server
        await until(lambda: server.mode != "open")
        await until(lambda: server.mode == "open")
        assert not +server._outages
        await until(lambda: _healthy(edge))
        assert await edge.cached(PROMPT) == 0
    assert caplog.records == []


async def _becomes(edge: Edge, mode: str) -> None:
    await until(lambda: edge.worker._server.mode == mode)


async def test_a_port_is_closed_while_anything_refuses_and_deaf_while_anything_is_half_open() -> None:
    async with one() as edge:
        server = edge.worker._server
        deeds = [asyncio.create_task(server.half_open(600)), asyncio.create_task(server.refuse(600))]
        deeds += [asyncio.create_task(server.refuse(600)), asyncio.create_task(server.half_open(600))]
        for ends, mode in enumerate(["closed", "closed", "deaf", "deaf", "open"]):
            await _becomes(edge, mode)
            if ends < 4:
                deeds[[1, 2, 0, 3][ends]].cancel()
                await asyncio.wait([deeds[[1, 2, 0, 3][ends]]])
        assert await _healthy(edge)


async def test_a_connection_held_through_two_outages_is_read_again_after_the_last() -> None:
    async with one() as edge:
        url = httpx2.URL(edge.worker.url)
        server = edge.worker._server
        reader, writer = await asyncio.open_connection(url.host, url.port)
        await until(lambda: len(list(server._transports())) == 1)
        long, short = (asyncio.create_task(server.half_open(seconds)) for seconds in (600, 0.05))
        await until(lambda: server.mode == "deaf")
        writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n")
        await short
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.1)
        long.cancel()
        assert await reader.readline() == b"HTTP/1.1 200 OK\r\n"
        writer.close()


async def test_a_process_started_with_outages_takes_requests_after_them() -> None:
    faults = ["--fault", "refuse=0.2", "--fault", "half_open=0.5"]
    with started("serve", *faults) as process:
        async with httpx2.AsyncClient(base_url=process.url, timeout=0.5) as client:

            async def answers() -> bool:
                try:
                    return bool((await client.get("/health")).status_code == 200)
                except httpx2.TransportError:
                    return False

            await until_awaited(answers)


async def test_a_newer_plan_is_not_undone_when_an_older_late_start_is_due() -> None:
    async with one(faults=Faults(late=600.0, lose=1.0)) as edge:
        publisher, older = _publisher(edge), edge.worker._opening
        assert older is not None
        edge.worker.follow(Faults(late=600.0, silent=True))
        await until(older.cancelled)
        assert publisher._pub is None
        edge.worker.follow(Faults(silent=True))
        await until(lambda: publisher._pub is not None)
        assert publisher.tamper.faults == Faults(silent=True)


async def test_a_late_publisher_is_healed_at_once() -> None:
    async with one(faults=Faults(late=600.0)) as edge:
        assert _publisher(edge)._pub is None
        assert (await edge.post("/_faults", {})).status_code == 200
        await until(lambda: _publisher(edge)._pub is not None)


async def test_a_restarted_worker_may_open_its_publisher_late() -> None:
    async with one() as edge:
        began, before = edge.worker.edge.started, _publisher(edge)
        await edge.post("/_faults", {"restart": True, "late": 600.0})
        await until(lambda: edge.worker.edge.started > began)
        assert _publisher(edge) is not before
        assert _publisher(edge)._pub is None
        await edge.complete(PROMPT)
        assert (await edge.batches())[0][0] == 0
        await edge.post("/_faults", {})
        await until(lambda: _publisher(edge)._pub is not None)


async def test_restarts_at_once_happen_one_after_another(caplog: pytest.LogCaptureFixture) -> None:
    async with one(dp=2) as edge:
        began, before = edge.worker.edge.started, edge.worker.describe()
        for _ in range(3):
            edge.worker.follow(Faults(restart=True))
        await until(lambda: edge.worker.edge.started > began and not edge.worker._deeds._tasks)
        assert edge.worker.describe() == before
        await edge.complete(PROMPT, routed_dp_rank=1)
        assert [seq for seq, _ in await edge.batches(1)][:2] == [0, 1]
    assert caplog.records == []


async def test_a_publisher_may_die_and_be_healed_again_and_again(caplog: pytest.LogCaptureFixture) -> None:
    async with one() as edge:
        for _ in range(20):
            for plan in ({"dead": True}, {}):
                assert (await edge.post("/_faults", plan)).status_code == 200
        await until(lambda: _publisher(edge)._pub is not None)
    assert caplog.records == []


async def test_a_restart_keeps_no_prompt_for_a_decode_worker() -> None:
    async with one(engine="vllm") as edge:
        began = edge.worker.edge.started
        await edge.complete(PROMPT, kv_transfer_params={"do_remote_decode": True})
        assert edge.worker.edge.rooms._offers
        await edge.post("/_faults", {"restart": True})
        await until(lambda: edge.worker.edge.started > began)
        assert not edge.worker.edge.rooms._offers


async def test_what_comes_while_a_worker_restarts_is_cut_like_what_came_before() -> None:
    async with one() as edge:
        began, over = edge.worker.edge.started, asyncio.Event()
        edge.worker._tasks.append(asyncio.create_task(_ends_late(over)))
        await asyncio.sleep(0)
        edge.worker.follow(Faults(restart=True))
        await until(edge.worker._restarting.locked)
        late = asyncio.create_task(edge.complete(PROMPT))
        await until(lambda: edge.worker.edge.live == 1)
        over.set()
        with pytest.raises((httpx2.ReadError, httpx2.RemoteProtocolError)):
            await late
        await until(lambda: edge.worker.edge.started > began)
        await edge.complete(PROMPT)


async def _ends_late(over: asyncio.Event) -> None:
    """Be a part of a worker that takes its time to end."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.Event().wait()
    await over.wait()
