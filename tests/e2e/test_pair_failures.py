"""One half of a pair dies, refuses or hangs, or the client leaves: at each stage, in both engines' ways."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.e2e.pairs import LONG, SLOW, body, pairs
from tests.waiting import until, until_awaited

if TYPE_CHECKING:
    from tests.e2e.pairs import Pairs

ENGINES = pytest.mark.parametrize("engine", ["sglang", "vllm"])
STREAM = pytest.mark.parametrize("stream", [False, True])
# Probes are too rare to notice anything: the requests themselves have to.
BLIND = ("--probe-seconds", "60")


def ask(found: Pairs, **fields: Any) -> asyncio.Task[httpx2.Response]:
    return asyncio.create_task(found.client.post("/v1/completions", json=body(**fields)))


def whole(answer: httpx2.Response, *, stream: bool) -> bool:
    if stream:
        return answer.text.endswith("data: [DONE]\n\n") and '"error"' not in answer.text
    return len(answer.json()["choices"]) == 1


async def handed_over(found: Pairs) -> None:
    """Wait until a request is with its decode worker alone."""

    async def over() -> bool:
        prefill, decode = await found.loads("prefill"), await found.loads("decode")
        return not any(map(any, prefill)) and any(map(any, decode))

    await until_awaited(over, "the prompt to be handed over")


async def lines_of(answer: httpx2.Response, seen: list[str]) -> None:
    async for line in answer.aiter_lines():
        seen += [line]


@ENGINES
@STREAM
async def test_a_prefill_worker_that_dies_early_is_replaced_unseen(engine: str, stream: bool) -> None:
    async with pairs(engine, *SLOW, prefill=2, apart=True, router_options=BLIND) as found:
        asked = ask(found, prompt=LONG, stream=stream)
        dying = await found.busy("prefill", tokens=True)
        await found.prefill[dying].die()
        answer = await asked
        assert answer.status_code == 200, answer.text
        assert whole(answer, stream=stream)
        assert answer.headers["x-kv-router-worker"] == found.urls("prefill")[1 - dying]
        await found.rest()


@ENGINES
async def test_the_last_prefill_worker_that_dies_is_an_error_that_says_so(engine: str) -> None:
    async with pairs(engine, *SLOW, router_options=BLIND) as found:
        asked = ask(found, prompt=LONG)
        await found.busy("prefill", tokens=True)
        await found.prefill[0].die()
        answer = await asked
        # What is heard first: that the connection is lost, or that the decode worker gets no prompt.
        assert answer.status_code in {500, 502}
        assert "worker_failed" in answer.text or "KV transfer failed" in answer.text
        await found.rest()


@ENGINES
async def test_a_prefill_worker_that_dies_after_the_handover_does_not_matter(engine: str) -> None:
    async with pairs(engine, *SLOW) as found:
        seen: list[str] = []
        streaming = body(stream=True, max_tokens=40)
        async with found.client.stream("POST", "/v1/completions", json=streaming) as answer:
            reading = asyncio.create_task(lines_of(answer, seen))
            await until(lambda: len(seen) > 2)
            await found.prefill[0].die()
            await reading
        events = [line for line in seen if line]
        assert events[-1] == "data: [DONE]"
        assert len(events) == 41
        await found.rest()


@ENGINES
@STREAM
async def test_a_decode_worker_that_dies_before_the_first_byte_is_replaced(engine: str, stream: bool) -> None:
    """SGLang's is there from the beginning, vLLM's gets the request once the prompt is computed."""
    slow = ("--transfer-gbps", "0.2")  # 64 tokens travel for 40 ms, 4,000 for 2.6 s
    async with pairs(engine, *slow, decode=2, apart=True, router_options=BLIND) as found:
        asked = ask(found, prompt=LONG, stream=stream, max_tokens=4)
        dying = await found.busy("decode")

        async def working() -> bool:
            ranks = await found.truth(found.decode[dying])
            return not all(rank["idle"] for rank in ranks)

        await until_awaited(working, "the decode worker to have the request")
        await found.decode[dying].die()
        answer = await asked
        assert answer.status_code == 200, answer.text
        assert whole(answer, stream=stream)
        assert answer.headers["x-kv-router-decode-worker"] == found.urls("decode")[1 - dying]
        await found.rest()


@ENGINES
async def test_a_decode_worker_that_dies_in_a_stream_ends_it_with_an_error_event(engine: str) -> None:
    async with pairs(engine, *SLOW) as found:
        seen: list[str] = []
        streaming = body(stream=True, max_tokens=5000)
        async with found.client.stream("POST", "/v1/completions", json=streaming) as answer:
            reading = asyncio.create_task(lines_of(answer, seen))
            await until(lambda: len(seen) > 2)
            await found.decode[0].die()
            await reading
        events = [line for line in seen if line.startswith("data: ")]
        assert json.loads(events[-1].removeprefix("data: "))["error"]["type"] == "upstream_error"
        await found.rest()


@ENGINES
async def test_workers_that_are_gone_cost_a_request_nothing(engine: str) -> None:
    async with pairs(engine, prefill=2, decode=2, apart=True, router_options=BLIND) as found:
        for gone in (found.prefill[0], found.decode[1]):
            await gone.die()
        answers = await asyncio.gather(*(ask(found) for _ in range(20)))
        assert {answer.status_code for answer in answers} == {200}
        assert {answer.headers["x-kv-router-worker"] for answer in answers} == {found.urls("prefill")[1]}
        await found.rest()


@ENGINES
async def test_a_client_that_leaves_during_prefill_ends_both_halves(engine: str) -> None:
    async with pairs(engine, *SLOW) as found:
        asked = ask(found, prompt=LONG)
        await found.busy("prefill", tokens=True)

        async def working() -> bool:
            ranks = [rank for half in (found.prefill, found.decode) for rank in await found.truth(half[0])]
            return not all(rank["idle"] for rank in ranks)

        await until_awaited(working, "the workers to have the request")
        asked.cancel()
        await found.rest()
        assert (await ask(found)).status_code == 200


@ENGINES
@STREAM
async def test_a_client_that_leaves_during_decode_ends_it(engine: str, stream: bool) -> None:
    async with pairs(engine, *SLOW) as found:
        asked = ask(found, stream=stream, max_tokens=5000)
        await handed_over(found)
        asked.cancel()
        await found.rest()
        assert (await ask(found)).status_code == 200


@ENGINES
async def test_a_request_that_a_worker_cannot_take_goes_back_to_the_client_as_it_is(engine: str) -> None:
    async with pairs(engine, "--max-model-len", "32", prefill=2) as found:
        async with httpx2.AsyncClient() as direct:
            pair = {"bootstrap_room": 1} if engine == "sglang" else {}
            said = await direct.post(f"{found.urls('prefill')[0]}/v1/completions", json=body() | pair)
        for stream in (False, True):
            answer = await ask(found, stream=stream)
            assert (answer.status_code, answer.json()) == (400, said.json())
            assert answer.headers["x-kv-router-worker"] in found.urls("prefill")
        metrics = (await found.client.get("/metrics")).text
        assert "kv_router_retries_total 0.0" in metrics
        await found.rest()


@ENGINES
@pytest.mark.parametrize("role", ["prefill", "decode"])
@pytest.mark.parametrize("status", [500, 503])
async def test_a_half_that_answers_with_an_error_is_replaced(engine: str, role: str, status: int) -> None:
    async with pairs(engine, prefill=2, decode=2) as found:
        await found.faults(getattr(found, role)[0], status=status)
        for number in range(4):
            prompt = [number * 7 + index % 90 + 1 for index in range(64)]
            answer = await ask(found, prompt=prompt, stream=number % 2 == 1)
            assert answer.status_code == 200, answer.text
        await found.rest()


@ENGINES
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_an_error_of_the_only_half_passes_unchanged(engine: str, role: str) -> None:
    async with pairs(engine) as found:
        broken = getattr(found, role)[0]
        await found.faults(broken, status=503)
        async with httpx2.AsyncClient() as direct:
            said = await direct.post(f"{broken.url}/v1/completions", json=body())
        answer = await ask(found)
        assert (answer.status_code, answer.content) == (503, said.content)
        await found.rest()


@ENGINES
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_half_that_hangs_costs_a_time_limit(engine: str, role: str) -> None:
    async with pairs(engine, router_options=["--first-byte-seconds", "0.5"]) as found:
        await found.faults(getattr(found, role)[0], slow=60)
        answer = await ask(found)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "worker_timeout")
        await found.idle()
        await found.faults(getattr(found, role)[0])


@ENGINES
async def test_a_prefill_worker_that_hangs_is_replaced_and_decode_workers_are_not_blamed(engine: str) -> None:
    limit = ("--first-byte-seconds", "0.5")
    async with pairs(engine, prefill=2, decode=2, router_options=limit) as found:
        hung = (await ask(found)).headers["x-kv-router-worker"]
        other = next(url for url in found.urls("prefill") if url != hung)
        await found.idle()
        await found.faults(next(member for member in found.prefill if member.url == hung), slow=60)
        for _ in range(7):
            answer = await ask(found)
            assert answer.status_code == 200, answer.text
            assert answer.headers["x-kv-router-worker"] == other
        rows = await found.rows()
        assert rows[hung]["breaker"]["failures"] == {"timeout": 5}
        assert rows[hung]["breaker"]["state"] == "open"
        for url in found.urls("decode"):
            assert (rows[url]["breaker"]["state"], rows[url]["breaker"]["failures"]) == ("closed", {})


@ENGINES
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_half_that_hangs_is_replaced_where_its_role_has_another(engine: str, role: str) -> None:
    limit = ("--first-byte-seconds", "0.5")
    prefill, decode = (2, 1) if role == "prefill" else (1, 2)
    async with pairs(engine, prefill=prefill, decode=decode, router_options=limit) as found:
        await found.faults(getattr(found, role)[0], slow=60)
        answers = [await ask(found) for _ in range(2)]
        assert {answer.status_code for answer in answers} == {200}


@ENGINES
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_mob_is_answered_while_a_half_dies(engine: str, role: str) -> None:
    """Whatever has not begun is answered; streams that have begun end in the open."""
    async with pairs(engine, prefill=3, decode=3, apart=True) as found:

        async def one(number: int) -> tuple[int, str]:
            prompt = [number * 13 + index % 97 + 1 for index in range(200)]
            answer = await ask(found, prompt=prompt, stream=True, max_tokens=60)
            return answer.status_code, answer.text

        mob = [asyncio.create_task(one(number)) for number in range(60)]
        await found.busy(role)
        await getattr(found, role)[0].die()
        answers = await asyncio.gather(*mob)
        assert {status for status, _ in answers} == {200}
        ended = [text for _, text in answers if text.endswith("data: [DONE]\n\n") and "error" not in text]
        cut = [text for _, text in answers if '"worker_failed"' in text.rpartition("data: ")[2]]
        assert len(ended) + len(cut) == 60
        assert all(text.count("data: ") > 1 for text in cut)
        assert role == "decode" or not cut
        await found.rest()


@ENGINES
@pytest.mark.parametrize("role", ["prefill", "decode"])
async def test_a_half_that_finds_the_request_bad_has_the_word_and_ends_the_other(
    engine: str, role: str
) -> None:
    async with pairs(engine, *SLOW, prefill=2, decode=2) as found:
        for member in getattr(found, role):
            await found.faults(member, status=422)
        async with httpx2.AsyncClient() as direct:
            said = await direct.post(f"{found.urls(role)[0]}/v1/completions", json=body())
        answer = await ask(found, prompt=LONG, stream=True)
        assert (answer.status_code, answer.content) == (422, said.content)
        assert "kv_router_retries_total 0.0" in (await found.client.get("/metrics")).text
        await found.rest()
