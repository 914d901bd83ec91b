"""Prefill and decode on two workers, over real HTTP, in both engines' ways."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.edge import Edge, events_of_stream, one, running, until
from workers.faults import Faults
from workers.spec import WorkerSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import httpx2

PROMPT = list(range(100, 164))
ASKS = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
_rooms = count(2**62)


@dataclass(slots=True)
class Halves:
    """A prefill and a decode worker of SGLang."""

    prefill: Edge
    decode: Edge

    def body(self, prompt: Any = PROMPT, max_tokens: int = 12, **fields: Any) -> dict[str, Any]:
        port = self.prefill.worker.describe()["bootstrap_port"]
        pair = {"bootstrap_host": "127.0.0.1", "bootstrap_port": port, "bootstrap_room": next(_rooms)}
        return {"prompt": prompt, "max_tokens": max_tokens, **pair, **fields}

    async def send(self, body: dict[str, Any]) -> tuple[httpx2.Response, httpx2.Response]:
        """Send a body to both at once; return both answers."""
        answers = (edge.post("/v1/completions", body) for edge in (self.prefill, self.decode))
        first, second = await asyncio.gather(*answers)
        return first, second

    async def begin(
        self, body: dict[str, Any], *, rooms: int
    ) -> asyncio.Task[tuple[httpx2.Response, httpx2.Response]]:
        """Send a body to both and return when the two halves of so many requests have met."""
        task = asyncio.create_task(self.send(body))
        known = self.prefill.worker.edge.rooms._rooms
        await until(lambda: sum(room.asked and room.request is not None for room in known.values()) == rooms)
        return task

    async def idle(self) -> None:
        for edge in (self.prefill, self.decode):
            await until(edge.worker.drivers[0].rank.idle)


@asynccontextmanager
async def _halves(overlap: str = "", *, radix: bool = False, **fields: Any) -> AsyncIterator[Halves]:
    prefill = WorkerSpec(loop="prefill" + overlap, **fields)
    decode = WorkerSpec(loop="decode" + overlap, decode_radix_cache=radix, **fields)
    async with running(prefill, decode) as edges:
        yield Halves(*edges)


@pytest.mark.parametrize("overlap", ["", "-overlap"])
@pytest.mark.parametrize("radix", [False, True])
async def test_two_halves_say_what_a_whole_worker_says(overlap: str, radix: bool) -> None:
    async with one() as whole:
        expected = await whole.complete(PROMPT, 12)
    async with _halves(overlap, radix=radix) as halves:
        _, decoded = await halves.send(halves.body())
        assert decoded.json()["choices"] == expected["choices"]
        assert decoded.json()["usage"] == expected["usage"]
        _, again = await halves.send(halves.body())
        assert again.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 48
        assert len((await halves.prefill.truth())["blocks"]) == 4
        assert len((await halves.decode.truth())["blocks"]) == (4 if radix else 0)
        assert (halves.decode.worker.endpoints is not None) == radix
        await halves.idle()


async def test_each_half_says_what_it_is_and_where_it_is_asked() -> None:
    async with _halves() as halves:
        told = [(await edge.get("/server_info")).json() for edge in (halves.prefill, halves.decode)]
        assert [info["disaggregation_mode"] for info in told] == ["prefill", "decode"]
        port = halves.prefill.worker.describe()["bootstrap_port"]
        assert told[0]["disaggregation_bootstrap_port"] == port
        assert told[1]["kv_events"] is None


async def test_a_stream_and_a_batch_are_handed_over_too() -> None:
    async with _halves() as halves:
        streams = await halves.send(halves.body(stream=True))
        assert len(events_of_stream(streams[1].text)) == 12
        rooms = [next(_rooms), next(_rooms)]
        _, both = await halves.send(halves.body([PROMPT, PROMPT[:20]], bootstrap_room=rooms))
        assert len(both.json()["choices"]) == 2
        wrong = await halves.decode.post("/v1/completions", halves.body(bootstrap_room=[1, 2]))
        assert wrong.status_code == 400


async def test_the_kv_takes_time_to_travel() -> None:
    async with _halves(transfer_bandwidth=64 * 131_072 / 0.3) as halves:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await halves.send(halves.body())
        assert loop.time() - began >= 0.3


@pytest.mark.parametrize("overlap", ["", "-overlap"])
@pytest.mark.parametrize("mode", ["in_place", "retract"])
async def test_a_paused_prefill_worker_keeps_no_kv_that_has_travelled(overlap: str, mode: str) -> None:
    async with _halves(overlap, transfer_bandwidth=64 * 131_072 / 0.2) as halves:
        body = halves.body()
        first = asyncio.create_task(halves.prefill.post("/v1/completions", body))
        second = asyncio.create_task(halves.decode.post("/v1/completions", body))
        side = halves.prefill.worker.drivers[0].rank.prefill
        assert side is not None
        await until(lambda: len(side.inflight) == 1)
        await halves.prefill.post("/pause_generation", {"mode": mode})
        assert (await second).json()["usage"]["completion_tokens"] == 12
        assert not first.done()
        assert (await halves.prefill.post("/flush_cache")).status_code == 400
        await halves.prefill.post("/continue_generation")
        assert (await first).status_code == 200
        assert halves.prefill.worker.edge.rooms._rooms == {}
        await halves.idle()


async def test_kv_is_handed_over_while_the_prefill_worker_computes_something_else() -> None:
    async with _halves(profile="70b-tp8") as halves:
        short, long = halves.body(PROMPT[:16]), halves.body([1] * 4000)
        first = asyncio.create_task(halves.send(short))
        rank = halves.prefill.worker.drivers[0].rank
        await until(lambda: rank.started() != [])
        second = asyncio.create_task(halves.send(long))
        decoding = halves.decode.worker.drivers[0].rank
        await until(lambda: decoding.counters.generated_tokens > 0)
        assert len(rank.started()) == 1
        assert rank.counters.prefilled_tokens == 16
        second.cancel()
        await first


async def test_a_prefill_batch_is_counted_while_it_runs_and_so_is_what_a_pause_stops() -> None:
    async with _halves(profile="8b-h100") as halves:
        task = asyncio.create_task(halves.send(halves.body([1] * 4000)))
        await until(lambda: halves.prefill.worker.drivers[0].rank.started() != [])
        told = (await halves.prefill.get("/v1/loads")).json()["loads"][0]
        assert (told["num_running_reqs"], told["num_waiting_reqs"]) == (1, 0)
        assert (await halves.prefill.truth())["running"] == 1
        assert 'num_running_reqs{model_name="stand-in",dp_rank="0"} 1.0' in (
            (await halves.prefill.get("/metrics")).text
        )
        task.cancel()


async def test_an_abort_reaches_a_prompt_whose_result_is_not_looked_at() -> None:
    async with _halves("-overlap", profile="8b-h100", chunk_tokens=1024) as halves:
        rank = halves.prefill.worker.drivers[0].rank
        ahead = await halves.begin(halves.body([1] * 1024), rooms=1)
        between = await halves.begin(halves.body([2] * 1024), rooms=2)
        task = await halves.begin(halves.body([3] * 1024, rid="mine"), rooms=3)
        await until(lambda: len(rank.launched) == 2)
        await halves.prefill.post("/pause_generation", {"mode": "in_place"})
        held = await halves.prefill.post("/update_weights_from_disk", {"model_path": "new"})
        assert (held.status_code, held.json()["num_paused_requests"]) == (400, 3)  # two in flight
        assert len(rank.launched) == 1
        await halves.prefill.post("/abort_request", {"rid": "mine"})
        await halves.prefill.post("/continue_generation")
        prefilled, decoded = await task
        assert prefilled.json()["choices"][0]["finish_reason"] == "abort"
        assert decoded.status_code == 500
        for pair in (ahead, between):
            assert [answer.status_code for answer in await pair] == [200, 200]
        await halves.idle()


async def test_a_prompt_on_its_way_holds_up_a_flush_of_both_sides() -> None:
    async with _halves(transfer_bandwidth=64 * 131_072 / 5, radix=True) as halves:
        task = asyncio.create_task(halves.send(halves.body()))
        side = halves.prefill.worker.drivers[0].rank.prefill
        assert side is not None
        await until(lambda: len(side.inflight) == 1)
        for edge in (halves.prefill, halves.decode):
            await edge.post("/pause_generation", {"mode": "retract"})
            assert (await edge.post("/flush_cache")).status_code == 400
        task.cancel()


@pytest.mark.parametrize("half", ["prefill", "decode"])
async def test_a_half_worker_refuses_a_request_without_a_room(half: str) -> None:
    async with one(loop=half) as edge:
        answer = await edge.post("/v1/completions", {"prompt": PROMPT})
        assert (answer.status_code, answer.json()["param"]) == (400, "bootstrap_room")


async def test_a_prompt_that_never_comes_fails_the_decode_side() -> None:
    async with _halves(pair_seconds=0.2) as halves:
        answer = await halves.decode.post("/v1/completions", halves.body())
        assert answer.status_code == 500
        assert "KV transfer failed" in answer.json()["message"]
        stream = await halves.decode.post("/v1/completions", halves.body(stream=True))
        assert events_of_stream(stream.text)[-1]["error"]["code"] == 500
        await halves.idle()


async def test_a_room_that_nobody_asks_for_fails_the_prefill_side() -> None:
    async with _halves(pair_seconds=0.2) as halves:
        answer = await halves.prefill.post("/v1/completions", halves.body())
        assert answer.status_code == 500
        assert "bootstrap room" in answer.json()["message"]
        await halves.idle()


async def test_a_decode_worker_without_anybody_to_ask_fails_at_once() -> None:
    async with one(loop="decode") as edge:
        body = {"prompt": PROMPT, "bootstrap_room": 1, "bootstrap_host": "127.0.0.1", "bootstrap_port": 1}
        assert (await edge.post("/v1/completions", body)).status_code == 500


async def test_a_decode_client_that_goes_fails_the_prefill_side() -> None:
    async with _halves(transfer_bandwidth=64 * 131_072 / 30) as halves:
        body = halves.body()
        prefilling = asyncio.create_task(halves.prefill.post("/v1/completions", body))
        decoding = asyncio.create_task(halves.decode.post("/v1/completions", body))
        side = halves.prefill.worker.drivers[0].rank.prefill
        assert side is not None
        await until(lambda: len(side.inflight) == 1)
        decoding.cancel()
        answer = await prefilling
        assert (answer.status_code, answer.json()["message"]) == (500, "the decode worker has gone")
        await halves.idle()


async def test_a_prefill_worker_that_dies_fails_the_decode_side() -> None:
    async with _halves(transfer_bandwidth=64 * 131_072 / 30) as halves:
        task = asyncio.create_task(halves.decode.post("/v1/completions", halves.body()))
        rooms = halves.prefill.worker.edge.rooms
        await until(lambda: any(room.asked for room in rooms._rooms.values()))
        rooms.close()
        assert (await task).status_code == 500
        await until(halves.decode.worker.drivers[0].rank.idle)


async def test_a_prefill_worker_that_refuses_fails_the_decode_side() -> None:
    async with _halves(pair_seconds=0.3) as halves:
        halves.prefill.worker.follow(Faults(status=503))
        first, second = await halves.send(halves.body())
        assert (first.status_code, second.status_code) == (503, 500)


async def _vllm_prefill(edge: Edge, prompt: Any = PROMPT) -> dict[str, Any]:
    answer = await edge.complete(prompt, 1, stream=False, kv_transfer_params=ASKS)
    params: dict[str, Any] = answer["kv_transfer_params"]
    return params


async def test_vllm_hands_over_by_what_the_prefill_answer_says() -> None:
    async with running(WorkerSpec(engine="vllm"), WorkerSpec(engine="vllm")) as [prefill, decode]:
        alone = await prefill.complete(PROMPT, 12)
        params = await _vllm_prefill(prefill)
        assert (params["do_remote_prefill"], params["do_remote_decode"]) == (True, False)
        assert len(params["remote_block_ids"]) == 4
        answer = await decode.complete(PROMPT, 12, kv_transfer_params=params)
        assert answer["choices"] == alone["choices"]
        assert (await decode.truth())["blocks"] == (await prefill.truth())["blocks"]
        assert (await decode.events())[0]["type"] == "BlockStored"
        assert decode.worker.drivers[0].rank.counters.decode_steps == 11


async def test_vllm_kv_is_fetched_once_and_what_is_not_there_is_an_error() -> None:
    async with running(WorkerSpec(engine="vllm"), WorkerSpec(engine="vllm")) as [prefill, decode]:
        params = await _vllm_prefill(prefill)
        assert (await decode.complete(PROMPT, 2, kv_transfer_params=params))["choices"]
        body = {"prompt": PROMPT, "max_tokens": 2, "kv_transfer_params": params}
        again = await decode.post("/v1/completions", body)
        assert again.status_code == 500
        assert "KV transfer failed" in again.json()["error"]["message"]
        await until(decode.worker.drivers[0].rank.idle)


async def test_vllm_keeps_a_prompts_blocks_until_they_are_fetched() -> None:
    async with running(WorkerSpec(engine="vllm"), WorkerSpec(engine="vllm")) as [prefill, decode]:
        params = await _vllm_prefill(prefill)
        assert (await prefill.post("/reset_prefix_cache")).json() == {"success": False}
        await decode.complete(PROMPT, 2, kv_transfer_params=params)
        await until(prefill.worker.drivers[0].rank.idle)
        assert (await prefill.post("/reset_prefix_cache")).json() == {"success": True}


async def test_vllm_kv_takes_time_to_travel() -> None:
    specs = (WorkerSpec(engine="vllm", transfer_bandwidth=64 * 131_072 / 0.3),) * 2
    async with running(*specs) as [prefill, decode]:
        params = await _vllm_prefill(prefill)
        loop = asyncio.get_running_loop()
        began = loop.time()
        await decode.complete(PROMPT, 2, kv_transfer_params=params)
        assert loop.time() - began >= 0.3


async def test_vllm_without_a_partner_computes_the_prompt_itself() -> None:
    async with one(engine="vllm") as edge:
        params = {"do_remote_prefill": True, "do_remote_decode": False}
        assert (await edge.complete(PROMPT, 3, kv_transfer_params=params))["usage"]["completion_tokens"] == 3
