from __future__ import annotations

import socket

import pytest

from tests.workers.edge import replay, running
from workers.checks import SpecError
from workers.fleet import Fleet
from workers.publisher import PublisherConfig
from workers.spec import WorkerSpec


async def test_workers_of_one_fleet_share_nothing_but_the_process() -> None:
    async with running(WorkerSpec(), WorkerSpec(engine="vllm"), WorkerSpec(host="::1")) as edges:
        for edge in edges:
            assert await edge.cached(list(range(40))) == 0
        assert await edges[2].cached(list(range(40))) == 32
        assert len({edge.worker.url for edge in edges}) == 3


async def test_every_batch_says_its_rank_and_a_time_of_day() -> None:
    async with running(WorkerSpec(dp=2)) as [edge]:
        await edge.complete(list(range(40)), routed_dp_rank=1)
        address = edge.worker.describe()["ranks"][1]["replay"]
        batches = await replay(address)
        assert [(seq, rank) for seq, _ts, _events, rank in batches] == [(0, 1), (1, 1)]
        assert all(ts >= edge.worker.edge.started - 1 for _seq, ts, _events, _rank in batches)


async def test_a_closed_fleet_has_given_its_ports_back_and_answered_everyone() -> None:
    async with running(WorkerSpec(profile="8b-h100")) as [edge]:
        await edge.post("/pause_generation", {"mode": "in_place"})
        url = edge.worker.url
        port = int(url.rsplit(":", 1)[1])
    with socket.create_server(("127.0.0.1", port)):
        pass


async def test_a_port_that_is_taken_is_named_and_closes_what_was_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with socket.create_server(("127.0.0.1", 0)) as probe:
            free = probe.getsockname()[1]
        fleet = Fleet([WorkerSpec(port=free), WorkerSpec(port=port)])
        with pytest.raises(OSError, match=str(port)):
            await fleet.__aenter__()
        with socket.create_server(("127.0.0.1", free)):
            pass


@pytest.mark.parametrize(
    "fields",
    [
        {"page_size": 0},
        {"capacity_tokens": 16},
        {"dp": -1},
        {"profile": "warp"},
        {"hash_form": "bytes"},
        {"chunk_tokens": 8},
        {"bigram": True, "engine": "vllm"},
        {"loop": "sideways"},
        {"loop": "overlap", "engine": "vllm"},
        {"events": PublisherConfig(connect="here")},
    ],
)
def test_a_wrong_value_is_named(fields: dict[str, object]) -> None:
    with pytest.raises(SpecError, match=next(iter(fields))):
        WorkerSpec(**fields)  # type: ignore[arg-type] # wrong values are the point
