"""The fleet follows its workers: they join late, fail, pause, restart, and come back."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
import zmq

from router.core.events import Batch
from router.errors import BadRequest, NoWorker, UnknownModel, UpstreamFailed
from router.fleet.fleet import Fleet
from router.fleet.limits import ViewLimits
from router.fleet.snapshot import snapshot
from router.fleet.spec import WorkerSpec
from router.fleet.worker import Worker, WorkerState
from router.proxy.limits import Limits
from tests.core.frames import stored
from tests.engines.scripted import Answer, ScriptedWorker, scripted
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from router.engines.description import Description
    from router.proxy.upstream import Upstream

HEALTHY = {"/health": Answer(), "/ready": Answer()}


def sglang(model: str = "tiny", **info: Any) -> dict[str, Answer]:
    body = {"model_path": model, "tokenizer_path": model, "served_model_name": model, "kv_events": None}
    return HEALTHY | {"/server_info": Answer(body | info)}


def vllm(model: str = "tiny", *adapters: str) -> dict[str, Answer]:
    cards = [{"id": model, "root": model, "parent": None}]
    cards += [{"id": adapter, "root": "path", "parent": model} for adapter in adapters]
    return HEALTHY | {
        "/version": Answer({"version": "0.32.0"}),
        "/v1/models": Answer({"object": "list", "data": cards}),
        "/is_paused": Answer({"is_paused": False}),
        "/is_sleeping": Answer({"is_sleeping": False}),
    }


def weights(version: str) -> dict[str, Answer]:
    return {"/model_info": Answer({"weight_version": version})}


def info(version: str) -> dict[str, Answer]:
    return {"/weight_info": Answer({"weight_version": version})}


def events(dp: int) -> dict[str, Any]:
    """Where nobody publishes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": port, "topic": "", "dp_size": dp}


async def prepare(_: Description, __: Upstream) -> None:
    return


def fleet_of(*urls: str, **spec: Any) -> AbstractAsyncContextManager[Fleet]:
    return fleet_with(*(WorkerSpec(url, **spec) for url in urls))


@asynccontextmanager
async def fleet_with(*specs: WorkerSpec, load_seconds: float = 0.0) -> AsyncIterator[Fleet]:
    fleet = Fleet(
        specs,
        upstream_limits=Limits(),
        view_limits=ViewLimits(
            predicted_ttl=30.0, approximate_ttl=600.0, predicted_bound=1000, replay_seconds=1.0
        ),
        probe_seconds=0.02,
        prepare=prepare,
        load_seconds=load_seconds,
    )
    fleet.start()
    try:
        yield fleet
    finally:
        await fleet.close()


def state(fleet: Fleet, worker: ScriptedWorker, expected: WorkerState) -> bool:
    return fleet.workers[worker.url].state is expected


def hold(worker: Worker) -> None:
    worker.ranks[0].view.apply(Batch(1.0, [stored([1], [1, 2, 3, 4])], 0))


def held(worker: Worker) -> int:
    return worker.ranks[0].view.blocks().get("GPU", 0)


async def test_a_worker_that_is_not_up_yet_joins_when_it_comes() -> None:
    async with scripted({}) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: "404" in fleet.workers[worker.url].why)
        assert state(fleet, worker, WorkerState.STARTING)
        assert not fleet.ready
        with pytest.raises(NoWorker):
            fleet.route("tiny")
        worker.routes |= sglang()
        await until(lambda: fleet.ready)
        assert [rank.worker for rank in fleet.route("tiny").ranks] == [worker.url]


async def test_a_name_of_the_model_that_the_operator_gives_is_one_more() -> None:
    async with scripted(sglang()) as (worker, _), fleet_of(worker.url, model="small") as fleet:
        await until(lambda: fleet.ready)
        assert [rank.worker for rank in fleet.route("small").ranks] == [worker.url]
        assert [rank.worker for rank in fleet.route("tiny").ranks] == [worker.url]
        assert fleet.route(None).model == "tiny"


async def test_a_worker_without_events_says_that_it_has_only_predictions() -> None:
    async with scripted(sglang()) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        (row,) = snapshot(fleet.workers.values())
        assert row.ranks[0].view == "silent"
        assert "predicted entries only" in row.ranks[0].why
        assert fleet.workers[worker.url].ranks[0].view.predicted.ttl == 600.0


async def test_an_unhealthy_worker_takes_nothing_and_comes_back() -> None:
    async with scripted(sglang()) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        worker.routes["/health"] = Answer(status=503)
        await until(lambda: state(fleet, worker, WorkerState.FAILED))
        assert fleet.route("tiny").ranks == []
        worker.routes["/health"] = Answer()
        await until(lambda: fleet.ready)


async def test_of_workers_that_are_slow_to_answer_the_last_one_of_a_model_goes_on_taking_requests(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("router.fleet.supervisor._PROBE_TIMEOUT", 0.2)
    async with (
        scripted(sglang()) as (one, _),
        scripted(sglang()) as (other, _),
        scripted(sglang("large")) as (large, _),
        fleet_of(one.url, other.url, large.url) as fleet,
    ):
        await until(lambda: len(fleet.models()) == 2 and len(fleet.route("tiny").ranks) == 2)
        one.routes["/health"] = Answer(seconds=0.5)
        await until(lambda: state(fleet, one, WorkerState.FAILED))
        other.routes["/health"] = Answer(seconds=0.5)
        last = "it is the last worker that takes its requests"
        await until(lambda: last in fleet.workers[other.url].why)
        assert [rank.worker for rank in fleet.route("tiny").ranks] == [other.url]
        assert sum(last in line for line in caplog.messages) == 1
        other.routes["/health"] = Answer()
        await until(lambda: not fleet.workers[other.url].why)
        one.routes["/health"] = Answer()
        await until(lambda: len(fleet.route("tiny").ranks) == 2)
        other.routes["/health"] = Answer(seconds=0.5)
        await until(lambda: state(fleet, other, WorkerState.FAILED))
        other.routes["/health"] = Answer()


async def test_who_is_slow_to_say_what_it_is_goes_on_taking_requests_where_nobody_else_can(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("router.fleet.supervisor._DESCRIBE_SECONDS", 0.1)
    async with scripted(sglang()) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        monkeypatch.setattr("router.engines.answer.TIMEOUT_SECONDS", 0.2)
        worker.routes["/server_info"].seconds = 0.5
        await until(lambda: "the last worker" in fleet.workers[worker.url].why)
        assert fleet.ready


async def test_a_worker_that_lost_contact_is_looked_at_before_it_takes_requests_again() -> None:
    async with (
        scripted(sglang()) as (one, _),
        scripted(sglang()) as (other, _),
        fleet_of(one.url, other.url) as fleet,
    ):
        await until(lambda: len(fleet.models()) and len(fleet.route("tiny").ranks) == 2)
        fleet.failed(fleet.workers[one.url].ranks[0], UpstreamFailed("the connection broke"))
        assert [rank.worker for rank in fleet.route("tiny").ranks] == [other.url]
        assert [rank.worker for (rank,) in fleet.route("tiny").spare] == [one.url]
        await until(lambda: len(fleet.route("tiny").ranks) == 2)
        assert fleet.workers[one.url].health.breaker.changes == {("open", "reset"): 1, ("closed", "probe"): 1}


async def test_a_paused_worker_takes_no_requests() -> None:
    async with (
        scripted(sglang()) as (one, _),
        scripted(sglang()) as (other, _),
        fleet_of(one.url, other.url) as fleet,
    ):
        await until(lambda: len(fleet.models()) and len(fleet.route("tiny").ranks) == 2)
        one.routes["/ready"] = Answer(status=503)
        await until(lambda: state(fleet, one, WorkerState.PAUSED))
        assert [rank.worker for rank in fleet.route("tiny").ranks] == [other.url]


async def test_while_every_worker_is_paused_a_request_waits_for_the_first_that_is_ready() -> None:
    async with scripted(sglang()) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        worker.routes["/ready"] = Answer(status=503)
        await until(lambda: state(fleet, worker, WorkerState.PAUSED))
        waiting = asyncio.create_task(fleet.wait_for("tiny", 60.0))
        with pytest.raises(NoWorker, match="paused") as refused:
            await fleet.wait_for("tiny", 0.01)
        assert refused.value.retry_after == 1
        assert not waiting.done()
        worker.routes["/ready"] = Answer()
        route = await waiting
        assert [rank.worker for rank in route.ranks] == [worker.url]


async def test_nothing_is_waited_for_where_no_worker_is_paused() -> None:
    async with scripted(sglang()) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        worker.routes["/health"] = Answer(status=503)
        await until(lambda: state(fleet, worker, WorkerState.FAILED))
        with pytest.raises(NoWorker, match="tiny"):
            await fleet.wait_for("tiny", 60.0)


async def test_other_weights_empty_a_view_that_no_event_has_emptied() -> None:
    async with scripted(sglang() | weights("a")) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes |= {"/ready": Answer(status=503)} | weights("b")
        await until(lambda: held(fleet.workers[worker.url]) == 0)
        assert fleet.workers[worker.url].ranks[0].view.resets == {"weights_changed": 1}


async def test_a_late_clear_of_one_update_does_not_stand_for_the_next() -> None:
    async with (
        scripted(sglang(kv_events=events(1)) | weights("a")) as (one, _),
        fleet_of(one.url) as fleet,
    ):
        await until(lambda: fleet.ready)
        worker = fleet.workers[one.url]
        for times, version in enumerate("bc", 1):
            hold(worker)
            one.routes |= {"/ready": Answer(status=503)} | weights(version)
            await until(lambda: held(worker) == 0, "the update to be noticed")
            assert worker.ranks[0].view.resets == {"weights_changed": times}
            one.routes["/ready"] = Answer()
            await until(lambda: fleet.ready)
            stream = worker.streams[0]
            assert stream is not None
            stream.counts.clears += 1


async def test_of_a_paused_worker_with_other_weights_those_ranks_are_emptied_that_still_claim_any() -> None:
    async with (
        scripted(sglang(kv_events=events(2)) | weights("a")) as (one, _),
        fleet_of(one.url) as fleet,
    ):
        await until(lambda: fleet.ready)
        worker = fleet.workers[one.url]
        for rank in worker.ranks:
            rank.view.apply(Batch(1.0, [stored([1], [1, 2, 3, 4])], 0))
        stream = worker.streams[0]
        assert stream is not None
        stream.counts.clears += 1
        worker.ranks[0].view.reset("all_blocks_cleared")
        one.routes |= {"/ready": Answer(status=503)} | weights("b")
        await until(lambda: state(fleet, one, WorkerState.PAUSED))
        assert [rank.view.resets for rank in worker.ranks] == [
            {"all_blocks_cleared": 1},
            {"weights_changed": 1},
        ]


async def test_other_weights_are_noticed_without_a_pause_when_the_worker_is_asked_who_it_is() -> None:
    async with scripted(sglang() | weights("a")) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes |= weights("b")
        fleet.workers[worker.url].renew()
        await until(lambda: held(fleet.workers[worker.url]) == 0)
        assert fleet.workers[worker.url].ranks[0].view.resets == {"weights_changed": 1}


async def test_an_engine_whose_clear_waits_for_its_next_request_is_asked_for_its_weights_each_time() -> None:
    async with scripted(vllm() | info("a")) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes |= info("b")
        await until(lambda: held(fleet.workers[worker.url]) == 0)
        assert fleet.workers[worker.url].ranks[0].view.resets == {"weights_changed": 1}


async def test_weights_that_a_worker_cannot_name_now_are_no_others() -> None:
    async with scripted(sglang() | weights("a")) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes |= {"/ready": Answer(status=503), "/model_info": Answer(status=500)}
        await until(lambda: state(fleet, worker, WorkerState.PAUSED))
        worker.routes |= {"/ready": Answer()} | weights("a")
        await until(lambda: fleet.ready)
        assert held(fleet.workers[worker.url]) == 1


async def test_a_pause_with_the_same_weights_keeps_the_view() -> None:
    async with scripted(sglang() | weights("a")) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes["/ready"] = Answer(status=503)
        await until(lambda: state(fleet, worker, WorkerState.PAUSED))
        worker.routes["/ready"] = Answer()
        await until(lambda: fleet.ready)
        assert held(fleet.workers[worker.url]) == 1


async def test_a_pause_keeps_the_view_of_an_engine_that_keeps_its_cache() -> None:
    async with scripted(sglang()) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes["/ready"] = Answer(status=503)
        await until(lambda: state(fleet, worker, WorkerState.PAUSED))
        assert held(fleet.workers[worker.url]) == 1


async def test_a_pause_empties_the_view_of_an_engine_that_may_clear_its_cache_unheard() -> None:
    async with scripted(vllm()) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes["/is_paused"] = Answer({"is_paused": True})
        await until(lambda: state(fleet, worker, WorkerState.PAUSED))
        assert held(fleet.workers[worker.url]) == 0
        assert fleet.workers[worker.url].ranks[0].view.resets == {"paused": 1}


@pytest.mark.parametrize("cut", [True, False])
async def test_who_fails_and_cuts_its_events_off_is_a_new_process_where_nothing_says_when_it_started(
    cut: bool,
) -> None:
    context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    publisher = context.socket(zmq.PUB)
    port = publisher.bind_to_random_port("tcp://127.0.0.1")
    info = {"publisher": "zmq", "endpoint_port_base": port, "topic": "", "block_size": 4, "dp_size": 1}
    try:
        async with scripted(sglang(kv_events=info)) as (worker, _), fleet_of(worker.url) as fleet:
            await until(lambda: fleet.ready)
            one = fleet.workers[worker.url]
            stream = one.stream(0)
            assert stream is not None
            await until(lambda: stream.cursor.why == "no batch has come yet")
            hold(one)
            if cut:
                publisher.close(linger=0)
                await until(lambda: "was lost" in stream.cursor.why)
            worker.routes["/health"] = Answer(status=500)
            await until(lambda: state(fleet, worker, WorkerState.FAILED))
            worker.routes["/health"] = Answer()
            await until(lambda: fleet.ready)
            assert one.ranks[0].view.resets == ({"restart": 1} if cut else {})
            assert held(one) == (0 if cut else 1)
            worker.routes["/health"] = Answer(status=500)
            await until(lambda: state(fleet, worker, WorkerState.FAILED))
            worker.routes["/health"] = Answer()
            await until(lambda: fleet.ready)
            assert one.ranks[0].view.resets == ({"restart": 1} if cut else {})  # no cut since
    finally:
        context.destroy(linger=0)


async def test_a_new_process_empties_the_view() -> None:
    async with scripted(sglang(startup_time=1)) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes |= sglang(startup_time=2) | {"/health": Answer(status=500)}
        await until(lambda: state(fleet, worker, WorkerState.FAILED))
        worker.routes["/health"] = Answer()
        await until(lambda: fleet.ready)
        assert fleet.workers[worker.url].ranks[0].view.resets == {"restart": 1}
        assert held(fleet.workers[worker.url]) == 0


async def test_a_worker_that_comes_back_as_another_model_starts_anew() -> None:
    async with scripted(sglang("one")) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        hold(fleet.workers[worker.url])
        worker.routes |= sglang("two") | {"/health": Answer(status=500)}
        await until(lambda: state(fleet, worker, WorkerState.FAILED))
        worker.routes["/health"] = Answer()
        await until(lambda: fleet.ready)
        assert list(fleet.models()) == ["two"]
        assert held(fleet.workers[worker.url]) == 0


async def test_models_and_adapters_are_routed_among_the_workers_that_serve_them() -> None:
    async with (
        scripted(vllm("big", "ad")) as (one, _),
        scripted(vllm("big")) as (two, _),
        scripted(sglang("small")) as (three, _),
        fleet_of(one.url, two.url, three.url) as fleet,
    ):
        await until(lambda: all(worker.description for worker in fleet.workers.values()))
        await until(lambda: len(fleet.route("big").ranks) == 2 and fleet.route("small").ranks)
        assert sorted(fleet.models()) == ["ad", "big", "small"]
        adapter = fleet.route("ad")
        assert (adapter.model, adapter.lora) == ("big", "ad")
        assert [rank.worker for rank in adapter.ranks] == [one.url]
        assert fleet.route("small:adapter").ranks[0].worker == three.url
        with pytest.raises(UnknownModel, match="small"):
            fleet.route("other")
        with pytest.raises(UnknownModel):
            fleet.route("big:adapter")
        with pytest.raises(BadRequest, match="big"):
            fleet.route(None)


async def test_a_request_without_a_model_goes_to_the_only_one() -> None:
    async with scripted(vllm("big", "ad")) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        assert (fleet.route(None).model, fleet.route(None).lora) == ("big", None)


async def test_halves_of_pairs_serve_once_both_are_there() -> None:
    async with (
        scripted(sglang(disaggregation_mode="prefill")) as (one, _),
        scripted(sglang(disaggregation_mode="decode")) as (other, _),
        fleet_of(one.url, other.url) as fleet,
    ):
        await until(lambda: fleet.ready)
        halves = (fleet.route("tiny").halves or {})["sglang"]
        assert [rank.worker for rank in halves.prefill] == [one.url]
        assert [rank.worker for rank in halves.decode] == [other.url]
        assert fleet.route("tiny").ranks == []
        other.routes["/health"] = Answer(status=500)
        await until(lambda: state(fleet, other, WorkerState.FAILED))
        assert not fleet.ready
        assert not fleet.route("tiny").serves


async def test_halves_of_different_engines_form_no_pair() -> None:
    async with (
        scripted(sglang(disaggregation_mode="prefill")) as (one, _),
        scripted(vllm()) as (other, _),
        fleet_with(WorkerSpec(one.url), WorkerSpec(other.url, role="decode")) as fleet,
    ):
        await until(lambda: state(fleet, one, WorkerState.READY) and state(fleet, other, WorkerState.READY))
        assert set(fleet.route("tiny").halves or {}) == {"sglang", "vllm"}
        assert not fleet.ready


async def test_a_request_waits_for_the_half_that_is_paused() -> None:
    async with (
        scripted(sglang(disaggregation_mode="prefill")) as (one, _),
        scripted(sglang(disaggregation_mode="decode")) as (other, _),
        fleet_of(one.url, other.url) as fleet,
    ):
        await until(lambda: fleet.ready)
        one.routes["/ready"] = Answer(status=503)
        await until(lambda: state(fleet, one, WorkerState.PAUSED))
        waiting = asyncio.create_task(fleet.wait_for("tiny", 60.0))
        one.routes["/ready"] = Answer()
        assert (await waiting).serves


async def test_every_rank_is_pinned_by_header_where_there_are_several() -> None:
    async with scripted(sglang(dp_size=2)) as (worker, _), fleet_of(worker.url) as fleet:
        await until(lambda: fleet.ready)
        rank, other = fleet.route("tiny").ranks
        assert fleet.worker_of(rank) is fleet.worker_of(other)
        assert fleet.worker_of(rank).pins == [
            ((b"x-data-parallel-rank", b"0"),),
            ((b"x-data-parallel-rank", b"1"),),
        ]
