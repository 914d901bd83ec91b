from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.edge import Edge, one, until
from workers.engine.hicache import TierConfig

if TYPE_CHECKING:
    from workers.engine.rank import PausedLoop

MODES: list[PausedLoop] = ["legacy", "publishing"]
PROMPT = list(range(64))
LONG = {"prompt": list(range(100, 140)), "max_tokens": 400}


def _clears(events: list[Any]) -> int:
    return sum(event["type"] == "AllBlocksCleared" for event in events)


async def _start(edge: Edge) -> asyncio.Task[Any]:
    """Start a long request and return when the engine decodes it."""
    task = asyncio.create_task(edge.post("/v1/completions", LONG))
    await until(lambda: edge.worker.drivers[0].rank.running != [])
    return task


async def test_pause_and_continue_answer_as_the_engine_does() -> None:
    async with one() as edge:
        paused = await edge.post("/pause_generation", {"mode": "retract"})
        assert paused.json() == {"message": "Generation paused successfully.", "status": "ok"}
        assert (await edge.get("/ready")).status_code == 503
        assert (await edge.get("/health")).status_code == 200
        resumed = await edge.post("/continue_generation", {})
        assert resumed.json() == {"message": "Generation continued successfully.", "status": "ok"}
        assert (await edge.get("/ready")).status_code == 200
        assert (await edge.post("/pause_generation", {"mode": "later"})).status_code == 400


async def test_a_worker_is_unhealthy_only_when_a_pause_has_lasted_20_seconds() -> None:
    async with one() as edge:
        await edge.post("/pause_generation")
        shared = edge.worker.edge
        for seconds, status in ((19.0, 200), (21.0, 503)):
            shared.paused_at = monotonic() - seconds
            assert (await edge.get("/health")).status_code == status
            assert (await edge.get("/health_generate")).status_code == status
        await edge.post("/continue_generation")
        assert (await edge.get("/health")).status_code == 200


@pytest.mark.parametrize("mode", ["abort", "retract", "in_place"])
async def test_new_requests_hang_during_a_pause_and_are_answered_after_it(mode: str) -> None:
    async with one() as edge:
        await edge.post("/pause_generation", {"mode": mode})
        task = asyncio.create_task(edge.complete("hello"))
        await until(lambda: edge.worker.edge.live == 1)
        await edge.get("/_truth")
        assert not task.done()
        await edge.post("/continue_generation")
        assert (await task)["usage"]["completion_tokens"] == 1


async def test_a_client_that_goes_during_a_pause_is_forgotten() -> None:
    async with one() as edge:
        await edge.post("/pause_generation")
        task = asyncio.create_task(edge.complete("hello"))
        await until(lambda: edge.worker.edge.live == 1)
        task.cancel()
        await until(lambda: edge.worker.edge.live == 0)
        await edge.post("/continue_generation")
        assert edge.worker.drivers[0].rank.counters.finished == 0


async def test_legacy_publishes_the_clear_only_after_continue() -> None:
    async with one(paused_loop="legacy") as edge:
        await edge.complete(PROMPT)
        await edge.post("/pause_generation", {"mode": "retract"})
        assert (await edge.post("/flush_cache")).status_code == 200
        assert (await edge.truth())["blocks"] == []
        assert _clears(await edge.events()) == 1
        await edge.post("/continue_generation")
        await edge.complete("x")
        assert _clears(await edge.events()) == 2


async def test_publishing_publishes_the_clear_during_the_pause() -> None:
    async with one() as edge:
        await edge.complete(PROMPT)
        await edge.post("/pause_generation", {"mode": "retract"})
        flushed = await edge.get("/flush_cache?timeout=0")
        assert (flushed.status_code, flushed.text.startswith("Cache flushed.")) == (200, True)
        assert _clears(await edge.events()) == 2


@pytest.mark.parametrize("paused_loop", MODES)
async def test_a_flush_is_refused_while_requests_run_and_allowed_once_retracted(
    paused_loop: PausedLoop,
) -> None:
    async with one(paused_loop=paused_loop, profile="8b-h100") as edge:
        task = await _start(edge)
        refused = await edge.post("/flush_cache")
        assert (refused.status_code, refused.text.strip()) == (400, "Flush cache failed.")
        await edge.post("/pause_generation", {"mode": "retract"})
        assert (await edge.post("/flush_cache")).status_code == 200
        late = await edge.post("/flush_cache?timeout=0.05")
        assert (late.status_code, late.text.strip()) == (400, "Timed out waiting for idle state.")
        task.cancel()


async def test_only_one_flush_waits_at_a_time() -> None:
    async with one(profile="8b-h100") as edge:
        task = await _start(edge)
        waiting = asyncio.create_task(edge.post("/flush_cache?timeout=15"))
        await until(lambda: edge.worker.edge.flushing)
        second = await edge.post("/flush_cache")
        assert (second.status_code, second.text.strip()) == (
            400,
            "Another flush_cache is already in progress.",
        )
        task.cancel()
        assert (await waiting).status_code == 200


@pytest.mark.parametrize("paused_loop", MODES)
async def test_a_weight_sync_loses_no_request(paused_loop: PausedLoop) -> None:
    async with one(paused_loop=paused_loop) as edge:
        task = await _start(edge)
        await edge.post("/pause_generation", {"mode": "retract"})
        body = {"model_path": "new", "weight_version": "7"}
        updated = await edge.post("/update_weights_from_disk", body)
        assert updated.status_code == 200
        assert updated.json()["success"] is True
        assert updated.json()["num_paused_requests"] == 1
        assert (await edge.truth())["blocks"] == []
        await edge.post("/continue_generation")
        answer = (await task).json()
        assert answer["usage"]["completion_tokens"] == 400
        info = (await edge.get("/model_info")).json()
        assert (info["model_path"], info["weight_version"]) == ("new", "7")


@pytest.mark.parametrize("paused_loop", MODES)
async def test_a_refused_flush_is_a_400_although_the_weights_have_changed(paused_loop: PausedLoop) -> None:
    async with one(paused_loop=paused_loop, profile="8b-h100") as edge:
        task = await _start(edge)
        await edge.post("/pause_generation", {"mode": "in_place"})
        body = {"model_path": "new", "weight_version": "7"}
        updated = await edge.post("/update_weights_from_disk", body)
        assert updated.status_code == 400
        assert updated.json()["success"] is False
        assert "not flushed" in updated.json()["message"]
        assert (await edge.get("/get_model_info")).json()["weight_version"] == "7"
        task.cancel()


async def test_an_update_without_a_pause_waits_for_what_runs_and_holds_what_comes() -> None:
    async with one() as edge:
        task = await _start(edge)
        updated = asyncio.create_task(edge.post("/update_weights_from_tensor", {}))
        await until(lambda: not edge.worker.edge.gate.is_set())
        late = asyncio.create_task(edge.complete("late"))
        assert (await updated).json()["success"] is True
        assert (await task).json()["usage"]["completion_tokens"] == 400
        assert (await late)["usage"]["completion_tokens"] == 1


async def test_an_update_may_abort_all_and_keep_the_cache() -> None:
    async with one(profile="8b-h100") as edge:
        task = await _start(edge)
        body = {"model_path": "m", "abort_all_requests": True, "flush_cache": False}
        assert (await edge.post("/update_weights_from_disk", body)).status_code == 200
        assert (await task).json()["choices"][0]["finish_reason"] == "abort"
        assert (await edge.truth())["blocks"] != []
        assert (await edge.post("/update_weights_from_disk", {})).status_code == 400


async def test_aborting_by_id_or_all_ends_the_answers() -> None:
    async with one(profile="8b-h100") as edge:
        first = asyncio.create_task(edge.post("/v1/completions", LONG | {"rid": "one"}))
        second = asyncio.create_task(edge.post("/v1/completions", LONG | {"rid": "two"}))
        await until(lambda: len(edge.worker.drivers[0].rank.running) == 2)
        assert (await edge.post("/abort_request", {"rid": "one"})).status_code == 200
        assert (await first).json()["choices"][0]["finish_reason"] == "abort"
        assert not second.done()
        await edge.post("/abort_request", {"abort_all": True})
        assert (await second).json()["choices"][0]["finish_reason"] == "abort"


async def test_releasing_memory_empties_the_cache() -> None:
    async with one() as edge:
        await edge.complete(PROMPT)
        await edge.post("/release_memory_occupation", {"tags": ["weights"]})
        assert (await edge.truth())["blocks"] != []
        assert (await edge.post("/release_memory_occupation", {})).status_code == 200
        assert (await edge.truth())["blocks"] == []
        assert (await edge.post("/resume_memory_occupation", {})).status_code == 200


async def test_server_info_says_where_events_are() -> None:
    async with one(dp=2, page_size=32, model="m") as edge:
        info = (await edge.get("/server_info")).json()
        events = info["kv_events"]
        assert events["publisher"] == "zmq"
        assert events["endpoint_host"] == "*"
        assert (events["block_size"], events["dp_size"]) == (32, 2)
        rank = edge.worker.describe()["ranks"][1]
        assert rank["kv"].endswith(f":{events['endpoint_port_base'] + 1}")
        assert rank["replay"].endswith(f":{events['replay_endpoint_port_base'] + 1}")
        assert (info["served_model_name"], info["page_size"]) == ("m", 32)
        assert (await edge.get("/get_server_info")).json()["startup_time"] == info["startup_time"]


async def test_without_events_server_info_says_so() -> None:
    async with one(events=None) as edge:
        assert (await edge.get("/server_info")).json()["kv_events"] is None
        assert edge.worker.describe()["ranks"] == [{"rank": 0, "kv": None, "replay": None, "load": None}]
        assert await edge.cached(PROMPT) == 0
        assert await edge.cached(PROMPT) == 48


async def test_load_and_metrics_count_requests_and_tokens() -> None:
    async with one(profile="8b-h100") as edge:
        task = await _start(edge)
        load = (await edge.get("/v1/loads")).json()["loads"][0]
        assert (load["num_running_reqs"], load["num_waiting_reqs"]) == (1, 0)
        assert load["num_used_tokens"] >= 40
        metrics = (await edge.get("/metrics")).text
        assert 'sglang:num_running_reqs{model_name="stand-in",dp_rank="0"} 1.0' in metrics
        await edge.post("/pause_generation", {"mode": "retract"})
        load = (await edge.get("/v1/loads")).json()["loads"][0]
        assert load["num_waiting_reqs"] == 1
        assert load["num_waiting_uncached_tokens"] >= 40
        task.cancel()


async def test_metrics_count_what_was_retracted_for_want_of_memory() -> None:
    async with one(capacity_tokens=512) as edge:
        prompts = [list(range(first, first + 20)) for first in range(0, 8000, 1000)]
        answers = await asyncio.gather(*(edge.complete(prompt, 60) for prompt in prompts))
        assert [answer["usage"]["completion_tokens"] for answer in answers] == [60] * 8
        retracted = edge.worker.drivers[0].rank.counters.retracted
        assert retracted > 0
        name = 'sglang:num_retracted_requests_total{model_name="stand-in",dp_rank="0"}'
        assert f"{name} {float(retracted)}\n" in (await edge.get("/metrics")).text


async def test_a_name_in_the_metrics_is_escaped() -> None:
    async with one(model='a "b" \\c') as edge:
        metrics = (await edge.get("/metrics")).text
        assert r'sglang:num_running_reqs{model_name="a \"b\" \\c",dp_rank="0"} 0.0' in metrics


async def test_models_name_the_adapters() -> None:
    async with one(model="m", adapters=("ad",)) as edge:
        models = (await edge.get("/v1/models")).json()["data"]
        assert [(model["id"], model["parent"]) for model in models] == [("m", None), ("ad", "m")]


async def test_the_truth_is_what_the_events_say() -> None:
    async with one(capacity_tokens=512) as edge:
        for start in range(0, 900, 50):
            await edge.complete(list(range(start, start + 120)), 3)
        await until(lambda: not edge.worker.drivers[0].rank.events.pending)
        blocks: set[int] = set()
        for event in await edge.events():
            if event["type"] == "BlockStored":
                blocks.update(event["block_hashes"])
            elif event["type"] == "BlockRemoved":
                blocks.difference_update(event["block_hashes"])
            else:
                blocks.clear()
        truth = await edge.truth()
        assert sorted(blocks) == sorted(truth["blocks"])
        assert truth["tokens"] == len(blocks) * 16


async def test_the_truth_tells_the_tiers() -> None:
    async with one(tiers=TierConfig(host=4.0)) as edge:
        await edge.complete(PROMPT)
        await until(edge.worker.drivers[0].rank.idle)
        truth = await edge.truth()
        assert truth["idle"]
        assert sorted(truth["tiers"]["CPU_PINNED"]) == sorted(truth["tiers"]["GPU"])
        await until(lambda: not edge.worker.drivers[0].rank.events.pending)
        media = [event.get("medium") for event in await edge.events()]
        assert media == [None, "GPU", "CPU_PINNED"]


async def test_an_update_may_leave_the_engine_paused() -> None:
    async with one() as edge:
        body = {"model_path": "new", "keep_pause": True}
        assert (await edge.post("/update_weights_from_disk", body)).json()["success"] is True
        assert (await edge.get("/ready")).status_code == 503
        waiting = asyncio.create_task(edge.complete("hello"))
        await until(lambda: edge.worker.edge.live == 1)
        await edge.post("/continue_generation")
        assert (await waiting)["usage"]["completion_tokens"] == 1


@pytest.mark.parametrize("source", ["tensor", "distributed", "ipc"])
async def test_weights_come_from_anywhere_with_their_version(source: str) -> None:
    async with one() as edge:
        await edge.complete(PROMPT)
        answer = await edge.post(f"/update_weights_from_{source}", {"weight_version": "9"})
        assert (answer.status_code, set(answer.json())) == (200, {"success", "message"})
        assert (await edge.truth())["blocks"] == []
        for path in ("/model_info", "/get_model_info"):
            assert (await edge.get(path)).json()["weight_version"] == "9"


@pytest.mark.parametrize("source", ["tensor", "distributed", "ipc"])
async def test_weights_from_anywhere_are_a_400_when_the_flush_is_refused(source: str) -> None:
    async with one(profile="8b-h100") as edge:
        task = await _start(edge)
        await edge.post("/pause_generation", {"mode": "in_place"})
        answer = await edge.post(f"/update_weights_from_{source}", {})
        assert (answer.status_code, answer.json()["success"]) == (400, False)
        task.cancel()
