from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.errors import BadRequest
from router.prompts.inexact import Inexact
from router.prompts.reader import read_prompt
from router.prompts.remote import question_of
from router.prompts.request import Kind, Request, kind_of, parse
from router.prompts.template import ChatTemplate
from router.prompts.tokenizer import RENDERERS, ChatTokenizer

if TYPE_CHECKING:
    from collections.abc import Callable

COMPLETIONS, CHAT, GENERATE = Kind.COMPLETIONS, Kind.CHAT, Kind.GENERATE
USER = {"role": "user", "content": "hi"}
NAMES = [
    "prompt",
    "model",
    "stream",
    "cache_salt",
    "extra_key",
    "lora_path",
    "routed_dp_rank",
    "truncate_prompt_tokens",
    "messages",
    "tools",
    "tool_choice",
    "documents",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "reasoning_effort",
    "text",
    "input_ids",
    "image_data",
    "role",
    "content",
    "type",
    "function",
    "arguments",
    "tool_calls",
    "name",
    "input",
    "instructions",
    "system",
    "thinking",
    "output_config",
    "tool_use_id",
    "summary",
    "output",
    "input_schema",
    "suffix",
]


def read(kind: Kind, **body: Any) -> Request:
    return parse(kind, json.dumps(body).encode())


def ids(*values: int) -> bytes:
    return array("I", values).tobytes()


@pytest.mark.parametrize(
    ("kind", "body", "prompt", "prompts"),
    [
        (COMPLETIONS, {"prompt": "hello"}, "hello", 1),
        (COMPLETIONS, {"prompt": [1, 2, 0xFFFFFFFF]}, ids(1, 2, 0xFFFFFFFF), 1),
        (COMPLETIONS, {"prompt": ["a", "bb"]}, "bb", 2),
        (COMPLETIONS, {"prompt": [[7], [9, 8], [10]]}, ids(9, 8), 3),
        (CHAT, {"messages": [USER]}, None, 1),
        (GENERATE, {"text": "hello"}, "hello", 1),
        (GENERATE, {"text": ["a", "b"]}, "a", 2),
        (GENERATE, {"input_ids": [3, 4]}, ids(3, 4), 1),
        (GENERATE, {"input_ids": [[3], [4]], "text": "ignored beside ids"}, ids(3), 2),
    ],
)
def test_every_shape_of_prompt_is_read_and_the_longest_of_several_stands_for_all(
    kind: Kind, body: dict[str, Any], prompt: str | bytes | None, prompts: int
) -> None:
    request = read(kind, **body, sampling_params={"max_new_tokens": 4}, unknown=[{}])
    assert (request.kind, request.prompt, request.prompts) == (kind, prompt, prompts)


def test_the_fields_around_the_prompt_are_exposed() -> None:
    request = read(
        COMPLETIONS, prompt="x", model="m", stream=True, cache_salt="s", lora_path="ad", routed_dp_rank=3
    )
    assert (request.model, request.stream, request.cache_salt) == ("m", True, "s")
    assert (request.lora, request.routed_dp_rank, request.extra_key) == ("ad", 3, None)


def test_lists_of_salts_and_adapters_give_those_of_the_first_prompt() -> None:
    request = read(GENERATE, text=["x", "y"], lora_path=[None, "ad"], cache_salt=["s", "t"], extra_key=[])
    assert (request.lora, request.cache_salt, request.extra_key) == (None, "s", None)


@pytest.mark.parametrize(
    ("kind", "body", "param", "expected"),
    [
        (COMPLETIONS, b"{}", "prompt", "prompt: expected a string, token ids"),
        (COMPLETIONS, b'{"prompt": null}', "prompt", "expected a string"),
        (COMPLETIONS, b'{"prompt": []}', "prompt", "not empty"),
        (COMPLETIONS, b'{"prompt": [[]]}', "prompt", "not empty"),
        (COMPLETIONS, b'{"prompt": {"a": 1}}', "prompt", "expected `str | array | null`, got `object`"),
        (COMPLETIONS, b'{"prompt": [1, -1]}', "prompt", "prompt[1]: expected `int` >= 0"),
        (COMPLETIONS, b'{"prompt": [4294967296]}', "prompt", "expected `int` <= 4294967295"),
        (COMPLETIONS, b'{"prompt": [1, true]}', "prompt", "got `bool`"),
        (COMPLETIONS, b'{"prompt": [1.5]}', "prompt", "got `float`"),
        (COMPLETIONS, b'{"prompt": [1, "a"]}', "prompt", "expected token ids only"),
        (COMPLETIONS, b'{"prompt": ["a", [1]]}', "prompt", "expected strings only"),
        (COMPLETIONS, b'{"prompt": "\\ud800"}', "prompt", "lone surrogate"),
        (COMPLETIONS, b'{"prompt": "x", "model": 5}', "model", "model: expected `str | null`, got `int`"),
        (COMPLETIONS, b'{"prompt": "x", "stream": "yes"}', "stream", "got `str`"),
        (COMPLETIONS, b"[]", None, "the body: expected `object`, got `array`"),
        (COMPLETIONS, b"", None, "not valid JSON"),
        (COMPLETIONS, b'{"prompt": "\xff"}', None, "not valid JSON"),
        (CHAT, b"{}", "messages", "at least one message"),
        (CHAT, b'{"messages": []}', "messages", "at least one message"),
        (CHAT, b'{"messages": [{"content": "x"}]}', "messages", "missing required field `role`"),
        (
            CHAT,
            b'{"messages": [{"role": "user", "content": 1}]}',
            "messages",
            "messages[0].content: expected",
        ),
        (CHAT, b'{"messages": [{"role": "user", "content": ["\\udfff"]}]}', "messages", "lone surrogate"),
        (CHAT, b'{"messages": [{"role": "u"}], "tools": "x"}', "tools", "tools: expected"),
        (
            CHAT,
            b'{"messages": [], "chat_template_kwargs": {"a":' + b"[" * 9999,
            "chat_template_kwargs",
            "deeply",
        ),
        (GENERATE, b"{}", "text", "text (a string) or input_ids"),
        (GENERATE, b'{"input_ids": ["a"]}', "input_ids", "input_ids[0]: expected `int | array`"),
    ],
)
def test_a_wrong_body_is_refused_with_the_field_and_what_was_expected(
    kind: Kind, body: bytes, param: str | None, expected: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(kind, body)
    assert caught.value.param == param
    assert expected in caught.value.message
    assert caught.value.body()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ({"prompt": "x"}, COMPLETIONS),
        ({"messages": [USER], "prompt": None}, CHAT),
        ({"text": "x"}, GENERATE),
        ({"input_ids": [1]}, GENERATE),
        ({"prompt_embeds": "x"}, COMPLETIONS),
        ({"input_embeds": [[1.5]]}, GENERATE),
        ({"input": "x"}, Kind.RESPONSES),
    ],
)
def test_kinds_of_body_are_told_apart_by_their_fields(body: dict[str, Any], kind: Kind) -> None:
    assert kind_of(json.dumps(body).encode()) is kind


def test_a_body_without_a_prompt_is_of_no_kind() -> None:
    with pytest.raises(BadRequest, match="expected one of prompt, messages, input_ids, text or input"):
        kind_of(b'{"model": "m"}')


scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.just("\ud800")
)
json_values = st.recursive(
    scalars, lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner)
)
bodies = st.dictionaries(st.sampled_from(NAMES), json_values).map(lambda body: json.dumps(body).encode())


def outcome(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except BadRequest as error:
        return error.body()


@given(
    st.sampled_from(Kind), bodies | st.binary() | json_values.map(lambda value: json.dumps(value).encode())
)
def test_any_body_gives_a_request_that_can_be_read_or_a_bad_request(kind: Kind, body: bytes) -> None:
    prompt = outcome(lambda: read_prompt(parse(kind, body), None))
    assert isinstance(prompt, bytes) or prompt.count == len(prompt.tokens) // 4 or not prompt.exact


@given(bodies | st.binary())
def test_any_body_has_a_kind_or_is_a_bad_request(body: bytes) -> None:
    assert isinstance(outcome(lambda: kind_of(body)), Kind | bytes)


messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["system", "user", "assistant", "tool", "developer"])},
        optional={
            "content": st.none()
            | st.text()
            | st.lists(st.text() | st.dictionaries(st.just("text"), st.text())),
            "tool_calls": st.none()
            | st.lists(st.dictionaries(st.sampled_from(["id", "function"]), json_values)),
            "reasoning": st.none() | st.text(),
        },
    ),
    min_size=1,
)
tools = st.none() | st.lists(st.dictionaries(st.sampled_from(["type", "function"]), json_values))


@given(st.sampled_from(["vllm", "sglang"]), messages, tools, st.booleans())
def test_any_chat_is_read_or_has_a_reason(
    deepseek: ChatTokenizer, engine: str, messages: Any, tools: Any, continued: bool
) -> None:
    body = {"messages": messages, "tools": tools, "continue_final_message": continued}
    render = RENDERERS[engine](ChatTemplate("{{ messages | tojson }}{{ tools | tojson }}", {}))
    tokenizer = ChatTokenizer(deepseek.encoder, "", render, render)
    prompt = outcome(lambda: read_prompt(parse(Kind.CHAT, json.dumps(body).encode()), tokenizer))
    assert isinstance(prompt, bytes) or prompt.exact or prompt.why


loose = st.dictionaries(st.sampled_from(NAMES), json_values)
TYPES = ["text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking", "search_result"]
ITEM_TYPES = ["message", "reasoning", "function_call", "function_call_output", "input_text"]
typed = st.sampled_from(TYPES) | st.sampled_from(ITEM_TYPES)
odd = st.dictionaries(
    st.sampled_from(["text", "content", "output", "role", "thinking", "summary", "input"]), json_values
)
blocks = st.lists(st.builds(lambda kind, rest: {**rest, "type": kind}, typed, loose | odd), max_size=4)
turns = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.text() | blocks}
    ),
    min_size=1,
    max_size=4,
)
tools_of_any_kind = st.none() | st.lists(loose, max_size=2)
responses = st.fixed_dictionaries(
    {"input": st.text() | blocks | turns},
    optional={"instructions": st.none() | st.text(), "tools": tools_of_any_kind},
)
anthropic = st.fixed_dictionaries(
    {"messages": turns},
    optional={
        "system": st.none() | st.text() | blocks,
        "tools": tools_of_any_kind,
        "thinking": st.none() | loose,
    },
)


@given(
    st.sampled_from(["vllm", "sglang"]),
    responses.map(lambda body: (Kind.RESPONSES, body)) | anthropic.map(lambda body: (Kind.MESSAGES, body)),
    st.booleans(),
)
def test_any_response_or_message_is_read_or_has_a_reason(
    deepseek: ChatTokenizer, engine: str, kind_and_body: tuple[Kind, Any], known: bool
) -> None:
    kind, body = kind_and_body
    template = ChatTemplate("{{ messages | tojson }}{{ tools | tojson }}", {})
    render = RENDERERS[engine](template)
    tokenizer = ChatTokenizer(deepseek.encoder, "", render, render, engine) if known else None
    data = json.dumps(body).encode()
    prompt = outcome(lambda: read_prompt(parse(kind, data), tokenizer, engine))
    assert isinstance(prompt, bytes) or prompt.exact or prompt.why
    question = outcome(lambda: _question(kind, data, engine))
    assert isinstance(question, bytes | dict | str)


def _question(kind: Kind, data: bytes, engine: str) -> Any:
    try:
        return question_of(parse(kind, data), engine)
    except Inexact as reason:
        return str(reason)


@pytest.mark.parametrize("kind", Kind)
def test_a_body_of_many_megabytes_is_a_request_or_a_bad_request_soon(kind: Kind) -> None:
    text = b"x" * 30_000_000
    for body in (
        b'{"prompt": "%s", "input": "", "text": "", "messages": [{"role": "user", "content": ""}]}' % text,
        b'{"unknown": "%s"}' % text,
        b"[" * 1_000_000,
        b'{"prompt": ' + b'{"a":' * 100_000,
        b'{"messages": [' + b'{"role":"user"},' * 100_000,
    ):
        assert outcome(lambda body=body: parse(kind, body)) is not None  # type: ignore[misc] # bound at once


GOOD: dict[Kind, dict[str, Any]] = {
    COMPLETIONS: {"prompt": ["a b", "c"], "suffix": "d", "truncate_prompt_tokens": 5, "cache_salt": "s"},
    GENERATE: {"text": ["a"], "lora_path": ["x"], "image_data": None, "input_embeds": None},
    CHAT: {
        "messages": [
            {"role": "system", "content": [{"type": "text", "text": "a", "cache_control": {}}]},
            {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}, "b"]},
            {
                "role": "assistant",
                "content": None,
                "reasoning": "r",
                "tool_calls": [
                    {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "1", "content": "c"},
            {"role": "developer", "content": "d", "tools": [{"function": {"name": "f"}}], "name": "n"},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
        "tool_choice": {"type": "function", "function": {"name": "f"}},
        "documents": [{"text": "d"}],
        "chat_template_kwargs": {"tools": None, "enable_thinking": True},
        "reasoning": {"effort": "low", "enabled": "yes"},
        "continue_final_message": True,
        "truncate_prompt_tokens": 5,
    },
    Kind.RESPONSES: {
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "a"}]},
            {"type": "reasoning", "content": [{"text": "b"}], "summary": []},
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"},
            {"type": "function_call_output", "output": "c", "call_id": "1"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "d"}], "status": "completed"},
        ],
        "instructions": "i",
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
        "reasoning": {"effort": "low"},
    },
    Kind.MESSAGES: {
        "system": [{"type": "text", "text": "s"}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "t"},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"x": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "c"}]}
                ],
            },
        ],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "tool", "name": "f"},
        "thinking": {"type": "enabled"},
        "output_config": {"effort": "low"},
    },
    Kind.OTHER: {"model": "m", "input": ["a"]},
}
"""A body of each kind in which every field is right that the reader looks at."""
SOURCE = (
    "{{ tools | tojson }}{% for m in messages %}{{ m.role }}{{ m.reasoning }}{{ m.tool_calls | tojson }}"
    "{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{{ part.text }}{% endfor %}{% endif %}{% endfor %}"
).replace("{{ m.tool_calls | tojson }}", "{% if m.tool_calls %}{{ m.tool_calls | tojson }}{% endif %}")


def places(value: Any) -> list[tuple[Any, Any]]:
    """Return every place in `value` as its holder and the key there."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


@given(st.data(), st.sampled_from(list(GOOD)), st.sampled_from(["vllm", "sglang"]), st.booleans())
def test_whatever_is_wrong_in_a_body_is_a_bad_request_or_a_reason(
    deepseek: ChatTokenizer, data: Any, kind: Kind, engine: str, parts: bool
) -> None:
    body = json.loads(json.dumps(GOOD[kind]))
    for _ in range(data.draw(st.integers(1, 2))):
        holder, key = data.draw(st.sampled_from(places(body)))
        holder[key] = data.draw(json_values)
    source = SOURCE if parts else SOURCE.replace("part in m.content", "part in [m.content]")
    render = RENDERERS[engine](ChatTemplate(source, {}))
    tokenizer = ChatTokenizer(deepseek.encoder, "", render, render, engine, parts=parts)
    raw = json.dumps(body).encode()
    for prompt in (
        outcome(lambda: read_prompt(parse(kind, raw), tokenizer, engine)),
        outcome(lambda: read_prompt(parse(kind, raw), None, engine)),
    ):
        assert isinstance(prompt, bytes) or "defect" not in prompt.why


@pytest.mark.parametrize("kind", [["text"], {}, 5, True, None, 1.5])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_part_whose_type_is_no_text_is_a_reason(deepseek: ChatTokenizer, kind: Any, engine: str) -> None:
    content = [{"type": kind, "text": "x"}]
    for request in (
        read(CHAT, messages=[{"role": "user", "content": content}]),
        read(Kind.RESPONSES, input=[{"role": "user", "content": content}]),
        read(Kind.MESSAGES, messages=[{"role": "user", "content": content}]),
        read(
            Kind.MESSAGES,
            messages=[{"role": "user", "content": [{"type": "tool_result", "content": content}]}],
        ),
    ):
        for tokenizer in (deepseek, None):
            prompt = read_prompt(request, tokenizer, engine)
            assert not prompt.exact
            assert prompt.why


@pytest.mark.parametrize("kind", list(GOOD))
def test_a_defect_of_the_reader_costs_the_prompt_and_not_the_request(kind: Kind) -> None:
    request = read(kind, **GOOD[kind])
    prompt = read_prompt(request, Broken(), "vllm")  # type: ignore[arg-type] # it is meant to be of no use
    assert not prompt.exact
    assert prompt.count > 0


class Broken:
    """A tokenizer that has nothing of one."""

    engine = "vllm"
