from __future__ import annotations

import asyncio
import json
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from router.prompts import vllm_chat
from router.prompts.prompt import MAX_TEXT_BYTES
from router.prompts.reader import LONG_BYTES, PromptReader, read_prompt
from router.prompts.request import Kind, Request, parse
from router.prompts.template import ChatTemplate
from router.prompts.tokenizer import RENDERERS, ChatTokenizer, load_tokenizer
from tests.prompts import models

if TYPE_CHECKING:
    from pathlib import Path

HELLO = array("I", [33310, 2058]).tobytes()


def request(kind: Kind, **body: Any) -> Request:
    return parse(kind, json.dumps(body).encode())


def completion(prompt: Any, **body: Any) -> Request:
    return request(Kind.COMPLETIONS, prompt=prompt, **body)


def test_token_ids_are_exact_without_a_tokenizer(reader: PromptReader) -> None:
    prompt = reader.read_now(completion([33310, 2058]), None)
    assert prompt is not None
    assert (prompt.tokens, prompt.count, prompt.exact, prompt.why) == (HELLO, 2, True, "")


def test_text_is_tokenised_on_the_spot(reader: PromptReader, deepseek: ChatTokenizer) -> None:
    for body in (completion("hello world"), request(Kind.GENERATE, text="hello world")):
        prompt = reader.read_now(body, deepseek)
        assert prompt is not None
        assert (prompt.tokens, prompt.count, prompt.exact) == (HELLO, 2, True)


def test_text_without_a_tokenizer_is_estimated_with_the_reason() -> None:
    prompt = read_prompt(completion("x" * 400), None)
    assert (prompt.tokens, prompt.count, prompt.exact, prompt.source) == (b"x" * 400, 100, False, "text")
    assert prompt.why == "there is no tokenizer for this model; the count is estimated"


def test_a_chat_without_a_tokenizer_is_estimated_from_its_texts() -> None:
    messages = [
        {"role": "user", "content": "x" * 40},
        {"role": "user", "content": ["y" * 40, {"type": "image"}]},
    ]
    assert read_prompt(request(Kind.CHAT, messages=messages), None).count == 2 * (10 + 4)
    tools = [{"type": "function", "function": {"name": "f", "description": "z" * 400}}]
    assert read_prompt(request(Kind.CHAT, messages=messages, tools=tools), None).count > 128


def test_of_a_very_long_text_only_the_beginning_stands_in() -> None:
    long = "é" * MAX_TEXT_BYTES
    for body in (completion(long), request(Kind.CHAT, messages=[{"role": "user", "content": long}])):
        prompt = read_prompt(body, None)
        assert len(prompt.tokens) == MAX_TEXT_BYTES
        assert prompt.count > MAX_TEXT_BYTES // 2
    assert read_prompt(completion(long), None).tokens == read_prompt(completion(long + "more"), None).tokens


def test_the_longest_of_several_prompts_decides_and_all_of_them_count(deepseek: ChatTokenizer) -> None:
    prompt = read_prompt(completion(["x", "hello world", "x"]), deepseek)
    assert (prompt.tokens, prompt.exact, prompt.why) == (HELLO, True, "the longest of 3 prompts decides")
    assert (prompt.count, prompt.reusable) == (4, 1)
    ids = read_prompt(completion([[7], [33310, 2058]]), None)
    assert (ids.tokens, ids.count, ids.reusable) == (HELLO, 3, 1)


def test_the_salt_and_adapter_are_those_of_the_longest_prompt() -> None:
    body = request(Kind.GENERATE, text=["a", "bbb"], cache_salt=["s", "t"], lora_path=[None, "ad"])
    assert (body.prompt, body.index, body.cache_salt, body.lora) == ("bbb", 1, "t", "ad")


def test_a_truncated_prompt_keeps_its_end_or_its_beginning_on_vllm_only() -> None:
    cut = completion([1, 2, 3], truncate_prompt_tokens=2, truncation_side="right")
    assert read_prompt(cut, None).count == 2
    assert read_prompt(cut, None).tokens == array("I", [1, 2]).tobytes()
    assert read_prompt(cut, None, "sglang").count == 3


def test_a_suffix_is_a_reason_where_the_engine_takes_it(deepseek: ChatTokenizer) -> None:
    body = completion("def f(", suffix="return x")
    assert not read_prompt(body, deepseek, "sglang").exact
    assert read_prompt(body, deepseek, "vllm").exact


def test_other_routes_are_estimated_by_their_size_and_never_matched() -> None:
    prompt = read_prompt(parse(Kind.OTHER, b"--form\r\n" + b"x" * 400), None)
    assert (prompt.tokens, prompt.source, prompt.exact) == (b"", "none", False)
    assert prompt.count == 102
    assert request(Kind.OTHER, model="m", input=["a"]).model == "m"


def test_the_salt_of_another_route_does_not_hide_its_model() -> None:
    assert request(Kind.OTHER, model="m", cache_salt="s").model == "m"


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.COMPLETIONS, {"prompt_embeds": "x" * 100_000}),
        (Kind.COMPLETIONS, {"prompt_embeds": ["x" * 100_000], "prompt": "hello"}),
        (Kind.GENERATE, {"input_embeds": [[0.25] * 4096] * 5}),
    ],
)
def test_embeddings_are_routed_by_load_with_the_reason(
    deepseek: ChatTokenizer, kind: Kind, body: dict[str, object]
) -> None:
    prompt = read_prompt(request(kind, model="m", **body), deepseek)
    assert (prompt.tokens, prompt.source, prompt.exact) == (b"", "none", False)
    assert "given as embeddings" in prompt.why
    assert 5 <= prompt.count <= 10


def test_completions_add_special_tokens_and_chats_do_not(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(models.byte_level(tmp_path, chat_template="{{ messages[0].content }}"))
    chat = [{"role": "user", "content": "abc"}]
    assert read_prompt(completion("abc"), tokenizer).count == 4
    assert read_prompt(completion("abc", add_special_tokens=False), tokenizer).count == 3
    assert read_prompt(request(Kind.GENERATE, text="abc"), tokenizer).count == 4
    assert read_prompt(request(Kind.CHAT, messages=chat), tokenizer).count == 3
    assert read_prompt(request(Kind.CHAT, messages=chat, add_special_tokens=True), tokenizer).count == 4


def test_truncated_prompts_keep_their_last_tokens(deepseek: ChatTokenizer) -> None:
    assert read_prompt(completion("hello world", truncate_prompt_tokens=1), deepseek).tokens == HELLO[4:]
    assert read_prompt(completion([1, 33310, 2058], truncate_prompt_tokens=2), None).tokens == HELLO
    assert read_prompt(completion([33310, 2058], truncate_prompt_tokens=-1), None).tokens == HELLO


@pytest.mark.parametrize("field", ["image_data", "video_data", "audio_data"])
def test_media_beside_a_native_prompt_is_a_reason(deepseek: ChatTokenizer, field: str) -> None:
    prompt = read_prompt(request(Kind.GENERATE, input_ids=[1] * 8, **{field: "data:"}), deepseek)
    assert (prompt.tokens, prompt.count, prompt.exact) == (b"", 8, False)
    assert "images, video or audio" in prompt.why
    assert read_prompt(request(Kind.GENERATE, input_ids=[1] * 8, **{field: None}), deepseek).exact


def test_a_template_that_refuses_makes_the_prompt_inexact_with_its_words(tmp_path: Path) -> None:
    template = "{{ raise_exception('roles must alternate') }}"
    tokenizer = load_tokenizer(models.byte_level(tmp_path, chat_template=template))
    prompt = read_prompt(request(Kind.CHAT, messages=[{"role": "user", "content": "x"}]), tokenizer)
    assert not prompt.exact
    assert "roles must alternate" in prompt.why


def test_text_that_no_tokenizer_takes_is_a_reason(deepseek: ChatTokenizer) -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": '{"half of a pair": "\\ud800"}'}}
    template = "{% for m in messages %}{{ m.tool_calls | tojson }}{% endfor %}"
    tokenizer = ChatTokenizer(deepseek.encoder, "", *_renderers(template))
    prompt = read_prompt(
        request(Kind.CHAT, messages=[{"role": "assistant", "tool_calls": [call]}]), tokenizer
    )
    assert not prompt.exact
    assert "fastokens failed" in prompt.why


def _renderers(template: str) -> tuple[Any, Any]:
    render = vllm_chat.renderer(ChatTemplate(template, {}))
    return render, render


async def test_a_long_prompt_is_read_in_a_thread_while_the_loop_goes_on(deepseek: ChatTokenizer) -> None:
    reader = PromptReader(threads=1)
    text = "lorem ipsum " * 20_000
    ticks = asyncio.Event()
    assert reader.read_now(completion(text), deepseek) is None
    asyncio.get_running_loop().call_soon(ticks.set)
    prompt = await reader.read(completion(text), deepseek)
    assert ticks.is_set()
    assert prompt.tokens == deepseek.encoder.encode(text, special=True)
    reader.close()
    with pytest.raises(RuntimeError, match="after shutdown"):
        await reader.read(completion(text), deepseek)


async def test_a_short_prompt_needs_no_thread(deepseek: ChatTokenizer) -> None:
    reader = PromptReader(threads=1)
    reader.close()
    assert (await reader.read(completion("hello world"), deepseek)).tokens == HELLO


def test_many_token_ids_never_wait_for_a_thread(reader: PromptReader, deepseek: ChatTokenizer) -> None:
    prompt = reader.read_now(completion(list(range(100_000))), deepseek)
    assert prompt is not None
    assert prompt.count == 100_000


async def test_very_long_prompts_wait_for_each_other_and_nobody_for_them(
    reader: PromptReader, deepseek: ChatTokenizer
) -> None:
    very_long = [completion(f"lorem ipsum {number} " * (LONG_BYTES // 8)) for number in range(16)]
    long = completion("lorem ipsum " * 5_000)
    waiting = [asyncio.create_task(reader.read(each, deepseek)) for each in very_long]
    prompt = await reader.read(long, deepseek)
    assert prompt.exact
    assert not all(task.done() for task in waiting)
    assert [(await task).exact for task in waiting] == [True] * 16


def test_a_body_that_would_take_a_thread_for_long_is_not_tokenised(
    reader: PromptReader, deepseek: ChatTokenizer
) -> None:
    text = "lorem ipsum " * (deepseek.encoder.most_bytes // 10)
    for body in (completion(text), request(Kind.CHAT, messages=[{"role": "user", "content": [text, {}]}])):
        prompt = reader.read_now(body, deepseek)
        assert prompt is not None
        assert not prompt.exact
        assert "the body is longer than 8,388,608 bytes" in prompt.why


def test_a_text_to_continue_is_tokenised_by_itself_on_sglang(tmp_path: Path, deepseek: ChatTokenizer) -> None:
    source = "{% for m in messages %}{{ m.content }}{% endfor %}x"
    body = request(
        Kind.CHAT,
        messages=[{"role": "user", "content": "a"}, {"role": "assistant", "content": "yz"}],
        continue_final_message=True,
        add_special_tokens=True,
    )
    render = RENDERERS["sglang"](ChatTemplate(source, {}))
    tokenizer = ChatTokenizer(deepseek.encoder, "", render, render, "sglang")
    parts = [deepseek.encoder.encode(text, special=False) for text in ("ax", "yz")]
    assert read_prompt(body, tokenizer, "sglang").tokens == b"".join(parts)
    assert b"".join(parts) != deepseek.encoder.encode("axyz", special=False)
    with_bos = load_tokenizer(
        models.byte_level(tmp_path, chat_template=source, bos_token="<s>"), engine="sglang"
    )
    assert with_bos.bos == array("I", [256]).tobytes()
    assert read_prompt(body, with_bos, "sglang").tokens == with_bos.ids("axyz", special=False)


@pytest.mark.parametrize(
    ("body", "left"),
    [
        ({}, [256, 67, 68]),
        ({"truncation_side": "left"}, [66, 67, 68]),
        ({"truncation_side": "right"}, [256, 64, 65]),
        ({"add_special_tokens": False}, [66, 67, 68]),
        ({"truncate_prompt_tokens": 9}, [256, 64, 65, 66, 67, 68]),
    ],
)
def test_a_text_is_cut_as_the_tokenizer_of_vllm_does_it_which_keeps_bos(
    tmp_path: Path, body: dict[str, Any], left: list[int]
) -> None:
    tokenizer = load_tokenizer(models.byte_level(tmp_path))
    prompt = read_prompt(completion("abcde", **{"truncate_prompt_tokens": 3, **body}), tokenizer)
    assert (array("I", prompt.tokens).tolist(), prompt.exact) == (left, True)


def test_a_text_cut_to_less_than_its_special_tokens_is_a_reason(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(models.byte_level(tmp_path, chat_template="{{ messages[0].content }}"))
    assert not read_prompt(completion("abcde", truncate_prompt_tokens=1), tokenizer).exact
    chat = {"messages": [{"role": "user", "content": "abcde"}], "truncate_prompt_tokens": 2}
    assert read_prompt(request(Kind.CHAT, **chat), tokenizer).exact
    assert not read_prompt(request(Kind.CHAT, **chat, add_special_tokens=True), tokenizer).exact


def test_a_prompt_cut_to_the_models_limit_may_be_another() -> None:
    prompt = read_prompt(completion([1, 2], truncate_prompt_tokens=-1), None)
    assert (prompt.count, prompt.exact, prompt.source) == (2, False, "tokens")
    assert "the model's limit" in prompt.why
    assert read_prompt(completion([1, 2], truncate_prompt_tokens=-1), None, "sglang").exact
