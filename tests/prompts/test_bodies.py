"""/v1/responses and /v1/messages: the chat that each engine makes of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from router.errors import BadRequest
from router.prompts.conversation import chat_of
from router.prompts.inexact import Inexact
from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse

if TYPE_CHECKING:
    from router.prompts.fields import Chat
    from router.prompts.tokenizer import ChatTokenizer

SYSTEM = {"role": "system", "content": "be brief"}
USER = {"role": "user", "content": "hi"}


def chat(kind: Kind, engine: str = "vllm", **body: Any) -> Chat:
    fields = parse(kind, json.dumps(body).encode()).fields
    return chat_of(fields, engine)  # type: ignore[arg-type] # both kinds are conversations


def responses(engine: str = "vllm", **body: Any) -> Any:
    return chat(Kind.RESPONSES, engine, **body).messages


def messages(engine: str = "vllm", **body: Any) -> Any:
    return chat(Kind.MESSAGES, engine, **body).messages


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_response_is_made_of_instructions_and_input(engine: str) -> None:
    assert responses(engine, input="hi", instructions="be brief") == [SYSTEM, USER]
    parts = [{"type": "input_text", "text": "hi"}]
    assert responses(engine, input=[{"role": "user", "content": parts}]) == [
        {"role": "user", "content": parts}
    ]
    assert chat(Kind.RESPONSES, engine, input="hi", reasoning={"effort": "low"}).reasoning_effort == "low"


def test_what_an_assistant_thought_said_and_called_is_one_message() -> None:
    items = [
        {"role": "user", "content": "hi"},
        {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "let me see"}]},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "sunny"},
        {"role": "assistant", "content": "it is sunny"},
        {"role": "assistant", "content": "really"},
    ]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    assert responses(input=items) == [
        USER,
        {"role": "assistant", "reasoning": "hm", "content": "let me see", "tool_calls": [call]},
        {"role": "tool", "content": "sunny", "tool_call_id": "1"},
        {"role": "assistant", "content": "it is sunny"},
        {"role": "assistant", "content": "really"},
    ]


@pytest.mark.parametrize(
    ("engine", "body", "reason"),
    [
        ("vllm", {"input": "x", "previous_response_id": "r"}, "continues an earlier response"),
        ("vllm", {"input": "x", "prompt": {"id": "p"}}, "stored prompt"),
        ("vllm", {"input": "x", "tools": [{"type": "web_search"}]}, "a tool of type 'web_search'"),
        ("sglang", {"input": "x", "tools": [{"type": "function", "name": "f"}]}, "on sglang"),
        ("vllm", {"input": [{"type": "image_generation_call"}]}, "image_generation_call"),
        ("vllm", {"input": [{"role": "assistant", "status": "incomplete"}]}, "to be continued"),
        ("sglang", {"input": [{"type": "reasoning"}]}, "on sglang"),
    ],
)
def test_what_only_the_engine_knows_of_a_response_is_a_reason(
    engine: str, body: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Inexact, match=reason):
        responses(engine, **body)


def test_the_functions_of_a_response_are_the_tools_of_a_chat() -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
    made = chat(Kind.RESPONSES, input="x", tools=[tool])
    function = {"name": "f", "parameters": {"type": "object"}, "strict": True}
    assert made.tools == [{"type": "function", "function": function}]
    assert chat(Kind.RESPONSES, input="x", tools=[]).tools is None


def test_system_texts_are_joined_as_each_engine_does() -> None:
    system = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert messages(system=system, messages=[USER])[0]["content"] == "ab"
    assert messages("sglang", system=system, messages=[USER])[0]["content"] == "a\nb"
    assert messages(system="be brief", messages=[USER]) == [SYSTEM, USER]
    billing = [{"type": "text", "text": "x-anthropic-billing-header: 1"}, system[0]]
    assert messages(system=billing, messages=[USER])[0]["content"] == "a"
    assert messages(messages=[SYSTEM, USER]) == [SYSTEM, USER]
    assert messages(messages=[{**SYSTEM, "content": billing[0]["text"] + "\nx"}, USER]) == [USER]
    for engine, body in (
        ("sglang", {"messages": [SYSTEM, USER]}),
        ("vllm", {"messages": [USER, SYSTEM, USER]}),
        ("vllm", {"messages": [SYSTEM, USER], "system": "x"}),
    ):
        with pytest.raises(Inexact, match="system messages among"):
            messages(engine, **body)
    with pytest.raises(Inexact, match="turns thinking off"):
        messages(messages=[USER], thinking={"type": "disabled"})


def test_tools_used_and_their_results_become_messages() -> None:
    turns = [
        USER,
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "1", "name": "f", "input": {"x": "é"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "y"}]},
                {"type": "text", "text": "so?"},
            ],
        },
    ]
    function = {"name": "f", "arguments": json.dumps({"x": "é"})}
    assert messages(messages=turns) == [
        USER,
        {
            "role": "assistant",
            "content": "ok",
            "tool_calls": [{"id": "1", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "y", "tool_call_id": "1"},
        {"role": "user", "content": "so?"},
    ]


def test_tools_and_the_choice_among_them_are_translated() -> None:
    tool = {"name": "f", "description": "d", "input_schema": {"type": "object"}}
    body: dict[str, Any] = {"messages": [USER], "tools": [tool], "tool_choice": {"type": "tool", "name": "f"}}
    made = chat(Kind.MESSAGES, **body)
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    assert made.tools == [{"type": "function", "function": function}]
    assert made.tool_choice == {"type": "function", "function": {"name": "f"}}
    assert chat(Kind.MESSAGES, messages=[USER], tool_choice={"type": "any"}).tool_choice == "required"
    with pytest.raises(Inexact, match="without an input_schema"):
        chat(Kind.MESSAGES, messages=[USER], tools=[{"type": "web_search_20250305", "name": "w"}])


def test_thoughts_are_vllms_to_render_and_a_reason_on_sglang() -> None:
    turn = {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "redacted_thinking", "data": "x"},
            {"type": "text", "text": "a"},
        ],
    }
    assert messages(messages=[turn]) == [{"role": "assistant", "reasoning": "hm", "content": "a"}]
    with pytest.raises(Inexact, match="reasoning parser"):
        messages("sglang", messages=[turn])
    with pytest.raises(Inexact, match="how the engine was started"):
        messages("sglang", messages=[USER], thinking={"type": "enabled", "budget_tokens": 9})
    assert messages("sglang", messages=[{"role": "assistant", "content": []}])[0]["content"] == ""


@pytest.mark.parametrize("content", [5, {"a": 1}, [5], [["x"]]])
def test_a_content_of_the_wrong_type_is_a_reason(content: Any) -> None:
    for item in ({"role": "user", "content": content}, {"type": "function_call_output", "output": content}):
        with pytest.raises(Inexact, match="neither text nor a list"):
            responses(input=[item])
    with pytest.raises(Inexact):
        messages(messages=[{"role": "user", "content": [{"type": "text", "text": content}]}])


def test_an_image_in_either_body_ends_what_is_hashed(deepseek: ChatTokenizer) -> None:
    image = {"type": "image", "source": {"type": "url", "url": "u"}}
    body = json.dumps({"messages": [USER, {"role": "user", "content": [image]}]}).encode()
    prompt = read_prompt(parse(Kind.MESSAGES, body), deepseek)
    assert (prompt.exact, prompt.source) == (False, "tokens")
    assert "messages[1]" in prompt.why
    result = {"type": "tool_result", "tool_use_id": "1", "content": [image]}
    with pytest.raises(Inexact, match="tool result that is not text"):
        messages(messages=[{"role": "user", "content": [result]}])


def test_both_bodies_give_the_ids_of_the_chat_they_stand_for(deepseek: ChatTokenizer) -> None:
    chat_body = json.dumps({"messages": [SYSTEM, USER]}).encode()
    expected = read_prompt(parse(Kind.CHAT, chat_body), deepseek)
    response = json.dumps({"instructions": "be brief", "input": "hi"}).encode()
    message = json.dumps({"system": "be brief", "messages": [USER], "max_tokens": 5}).encode()
    assert read_prompt(parse(Kind.RESPONSES, response), deepseek) == expected
    assert read_prompt(parse(Kind.MESSAGES, message), deepseek) == expected


@pytest.mark.parametrize(
    ("kind", "body", "param"),
    [
        (Kind.RESPONSES, {}, "input"),
        (Kind.RESPONSES, {"input": 5}, "input"),
        (Kind.RESPONSES, {"input": [5]}, "input"),
        (Kind.MESSAGES, {}, "messages"),
        (Kind.MESSAGES, {"messages": []}, "messages"),
        (Kind.MESSAGES, {"messages": [{"role": "user"}]}, "messages"),
        (Kind.MESSAGES, {"messages": [USER], "system": 5}, "system"),
    ],
)
def test_a_field_that_is_wrong_is_named(kind: Kind, body: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as caught:
        parse(kind, json.dumps(body).encode())
    assert caught.value.param == param
