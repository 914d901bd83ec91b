from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from tests.workers.edge import Edge, events_of_stream, one, until

if TYPE_CHECKING:
    from workers.spec import EngineName

ENGINES: list[EngineName] = ["sglang", "vllm"]


def _text(events: list[Any]) -> str:
    return "".join(event["choices"][0]["text"] for event in events if event["choices"])


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_repeated_prompt_is_cached_up_to_its_last_token(engine: EngineName) -> None:
    async with one(engine=engine) as edge:
        assert await edge.cached(list(range(64))) == 0
        assert await edge.cached(list(range(64))) == 48
        assert await edge.cached(list(range(65))) == 64


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_stream_says_what_the_plain_answer_says(engine: EngineName) -> None:
    async with one(engine=engine) as edge:
        plain = await edge.complete("once upon a time", 20)
        options = {"stream": True, "stream_options": {"include_usage": True}}
        body = {"prompt": "once upon a time", "max_tokens": 20, **options}
        answer = await edge.post("/v1/completions", body)
        events = events_of_stream(answer.text)
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert _text(events) == plain["choices"][0]["text"]
        assert events[-1]["choices"] == []
        assert events[-1]["usage"]["completion_tokens"] == 20
        assert [event["choices"][0]["finish_reason"] for event in events[:-1]][-1] == "length"


async def test_usage_is_streamed_only_when_asked_for() -> None:
    async with one() as edge:
        answer = await edge.post("/v1/completions", {"prompt": "x", "max_tokens": 2, "stream": True})
        assert all("usage" not in event for event in events_of_stream(answer.text))


async def test_tokens_arrive_one_by_one_while_the_answer_is_still_being_made() -> None:
    async with one(profile="8b-h100") as edge:
        body = {"prompt": "x", "max_tokens": 20, "stream": True}
        async with edge.client.stream("POST", edge.worker.url + "/v1/completions", json=body) as answer:
            pieces = answer.aiter_text()
            assert _text(events_of_stream(await anext(pieces) + "data: [DONE]\n\n")) != ""
            assert (await edge.truth())["running"] == 1
            assert [piece async for piece in pieces]


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_chat_names_its_role_first_and_its_end_last(engine: EngineName) -> None:
    async with one(engine=engine) as edge:
        messages = [{"role": "user", "content": [{"type": "text", "text": "hello"}]}]
        plain = (await edge.post("/v1/chat/completions", {"messages": messages})).json()
        answer = await edge.post("/v1/chat/completions", {"messages": messages, "stream": True})
        choices = [event["choices"][0] for event in events_of_stream(answer.text)]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert (choices[-1]["delta"] == {}) is (engine == "sglang")  # vLLM's last piece of text carries it
        assert choices[-1]["finish_reason"] == "stop"
        said = "".join(choice["delta"].get("content", "") for choice in choices)
        assert said == plain["choices"][0]["message"]["content"] != ""


async def test_the_next_turn_of_a_chat_hits_the_one_before() -> None:
    async with one() as edge:
        messages = [{"role": "user", "content": "tell me something long enough for a few blocks"}]
        first = (await edge.post("/v1/chat/completions", {"messages": messages, "max_tokens": 40})).json()
        messages.append(first["choices"][0]["message"])
        messages.append({"role": "user", "content": "and more"})
        second = (await edge.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1})).json()
        before = first["usage"]["total_tokens"] - 1
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] == before // 16 * 16


async def test_a_list_of_prompts_gives_a_choice_each() -> None:
    async with one(engine="vllm", page_size=32) as edge:
        answer = await edge.complete([list(range(8000, 8070)), list(range(8000, 8040))], 2)
        assert [choice["index"] for choice in answer["choices"]] == [0, 1]
        assert answer["usage"]["prompt_tokens"] == 110
        assert answer["usage"]["completion_tokens"] == 4


async def test_the_native_route_answers_with_meta_info_and_cumulative_text() -> None:
    async with one() as edge:
        body = {"input_ids": list(range(40)), "sampling_params": {"max_new_tokens": 3}, "rid": "mine"}
        plain = (await edge.post("/generate", body)).json()
        meta = plain["meta_info"]
        assert (meta["id"], meta["prompt_tokens"], meta["completion_tokens"]) == ("mine", 40, 3)
        assert meta["finish_reason"] == {"type": "length", "length": 3}
        events = events_of_stream((await edge.post("/generate", body | {"stream": True})).text)
        assert events[-1]["text"] == plain["text"]
        assert events[-1]["meta_info"]["cached_tokens"] == 32
        both = (await edge.post("/generate", {"text": ["one", "two"]})).json()
        assert [len(answer["output_ids"]) for answer in both] == [128, 128]


async def test_a_seed_makes_the_text() -> None:
    texts = []
    for seed in (1, 1, 2):
        async with one(seed=seed) as edge:
            texts.append((await edge.complete("hello", 12))["choices"][0]["text"])
    assert texts[0] == texts[1] != texts[2]


async def _gone(edge: Edge, body: dict[str, Any], *, read: bool) -> None:
    """Open a request by hand and break the connection while the engine works on it."""
    url = httpx2.URL(edge.worker.url)
    reader, writer = await asyncio.open_connection(url.host, url.port)
    payload = json.dumps(body).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(payload)
    writer.write(head + payload)
    await until(lambda: edge.worker.drivers[0].rank.running != [])
    if read:
        await reader.read(1)
    writer.transport.abort()


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_takes_its_request_out_of_the_engine(stream: bool) -> None:
    async with one(profile="8b-h100") as edge:
        body = {"prompt": "x", "max_tokens": 100_000, "stream": stream}
        await _gone(edge, body, read=stream)
        await until(edge.worker.drivers[0].rank.idle)
        assert edge.worker.edge.live == 0
        assert edge.worker.drivers[0].rank.counters.finished == 1


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"{bad", "validation error"),
        (b"[1]", "dictionary"),
        (b"{}", "prompt"),
        (b'{"prompt": ""}', "empty"),
        (b'{"prompt": [[]]}', "empty"),
        (b'{"prompt": [1, "x"]}', "token ids"),
        (b'{"prompt": [4294967296]}', "token ids"),
        (b'{"prompt": 7}', "token ids"),
        (b'{"prompt": "x", "max_tokens": 0}', "max_tokens"),
        (b'{"prompt": "x", "max_tokens": "9"}', "max_tokens"),
        (b'{"prompt": "x", "n": 0}', "n must be"),
        (b'{"prompt": "x", "model": 3}', "model"),
    ],
)
async def test_what_cannot_be_read_is_a_400_in_the_words_of_the_engine(
    engine: EngineName, body: bytes, said: str
) -> None:
    async with one(engine=engine) as edge:
        answer = await edge.client.post(edge.worker.url + "/v1/completions", content=body)
        error = answer.json()["error"] if engine == "vllm" else answer.json()
        assert (answer.status_code, error["code"]) == (400, 400)
        assert said in error["message"]
        if engine == "sglang":
            assert error["object"] == "error"


@pytest.mark.parametrize("messages", [None, [], ["x"], [{"content": "x"}]])
async def test_a_chat_without_messages_that_can_be_rendered_is_a_400(messages: Any) -> None:
    async with one() as edge:
        answer = await edge.post("/v1/chat/completions", {"messages": messages})
        assert answer.status_code == 400
        assert answer.json()["param"] == "messages"


async def test_a_prompt_too_long_for_the_model_or_the_cache_is_a_400() -> None:
    async with one(engine="vllm", max_model_len=100) as edge:
        answer = await edge.post("/v1/completions", {"prompt": [1] * 100})
        assert answer.status_code == 400
        assert answer.json()["error"]["param"] == "input_tokens"
    async with one(capacity_tokens=64) as edge:
        assert (await edge.post("/v1/completions", {"prompt": [1] * 64})).status_code == 400
        assert (await edge.complete([1] * 40, 500))["usage"]["completion_tokens"] == 8


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
async def test_a_prompt_answered_n_times_is_counted_once(engine: EngineName) -> None:
    prompts = [list(range(40)), list(range(100, 170))]
    async with one(engine=engine) as edge:
        alone = [(await edge.complete(prompt, 5))["choices"][0]["text"] for prompt in prompts]
        answer = await edge.complete(prompts, 5, n=3)
        assert [choice["text"] for choice in answer["choices"]] == [alone[0]] * 3 + [alone[1]] * 3
        usage = answer["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"]) == (110, 30)
        assert usage["total_tokens"] == 140
        assert usage["prompt_tokens_details"]["cached_tokens"] == 32 + 64
        options = {"stream": True, "stream_options": {"include_usage": True}}
        stream = await edge.post("/v1/completions", {"prompt": prompts, "max_tokens": 5, "n": 3} | options)
        streamed = events_of_stream(stream.text)[-1]["usage"]
        assert streamed.pop("prompt_tokens_details")["cached_tokens"] == 32 + 64
        assert streamed.items() <= usage.items()
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
        once = (await edge.post("/v1/chat/completions", chat)).json()["usage"]
        thrice = (await edge.post("/v1/chat/completions", chat | {"n": 3})).json()["usage"]
        assert (thrice["prompt_tokens"], thrice["completion_tokens"]) == (once["prompt_tokens"], 6)


async def test_a_rank_is_pinned_by_header_or_body() -> None:
    async with one(dp=2) as edge:
        for rank in (1, 1, 0):
            await edge.post(
                "/v1/completions",
                {"prompt": list(range(40)), "max_tokens": 1},
                headers={"X-Data-Parallel-Rank": str(rank)},
            )
        assert await edge.cached(list(range(40)), routed_dp_rank=1) == 32
        assert await edge.cached(list(range(50, 90)), routed_dp_rank=0) == 0
        assert await edge.cached(list(range(50, 90)), routed_dp_rank=1) == 0
        counts = [driver.rank.counters.finished for driver in edge.worker.drivers]
        assert counts == [2, 4]


@pytest.mark.parametrize("rank", ["2", "-1", "x"])
async def test_a_rank_out_of_range_is_a_400(rank: str) -> None:
    async with one(dp=2, engine="vllm") as edge:
        headers = {"X-data-parallel-rank": rank}
        answer = await edge.post("/v1/completions", {"prompt": "x"}, headers=headers)
        assert answer.status_code == 400


async def test_ranks_take_turns_when_none_is_pinned() -> None:
    async with one(dp=3) as edge:
        for _ in range(6):
            await edge.complete("x")
        assert [driver.rank.counters.finished for driver in edge.worker.drivers] == [2, 2, 2]


async def test_adapters_and_salts_are_namespaces_on_both_engines() -> None:
    prompt = list(range(40))
    async with one(adapters=("ad",)) as edge:
        await edge.complete(prompt)
        for fields in ({"lora_path": "ad"}, {"cache_salt": "s"}, {"model": "m:ad", "cache_salt": "s"}):
            assert await edge.cached(prompt, **fields) == 0
            assert await edge.cached(prompt, **fields) == 32
        assert await edge.cached(prompt, model="m:ad") == 32
        assert (await edge.post("/v1/completions", {"prompt": "x", "lora_path": "no"})).status_code == 400
    async with one(engine="vllm", adapters=("ad",)) as edge:
        await edge.complete(prompt)
        assert await edge.cached(prompt, model="ad") == 0
        assert await edge.cached(prompt, model="ad") == 32
        events = await edge.events()
        assert events[-1]["lora_name"] == "ad"
        assert events[-1]["extra_keys"] == [["ad"], ["ad"]]
