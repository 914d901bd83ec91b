"""What each engine makes of a chat before and after the template sees it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from router.prompts import sglang_chat, vllm_chat
from router.prompts.fields import Chat
from router.prompts.inexact import Inexact
from router.prompts.request import Kind, parse
from router.prompts.template import ChatTemplate

STRINGS = (
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}"
    "{{ '>' if add_generation_prompt else '' }}"
)
PARTS = (
    "{% for m in messages %}[{% if m.content is string %}{{ m.content }}"
    "{% else %}{% for part in m.content %}<{{ part.text }}>{% endfor %}{% endif %}]{% endfor %}"
)
DUMP = "{{ messages | tojson }}"
TOOLS = "{{ tools | tojson }}"
TWO_TEXTS = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def chat(*messages: dict[str, Any], **fields: Any) -> Chat:
    request = parse(Kind.CHAT, json.dumps({"messages": messages, **fields}).encode())
    assert isinstance(request.fields, Chat)
    return request.fields


def vllm(source: str, *messages: dict[str, Any], **fields: Any) -> str:
    return vllm_chat.renderer(ChatTemplate(source, {}))(chat(*messages, **fields))


def sglang(source: str, *messages: dict[str, Any], **fields: Any) -> str:
    return sglang_chat.renderer(ChatTemplate(source, {}))(chat(*messages, **fields))


def test_text_parts_are_joined_for_a_template_that_wants_strings() -> None:
    assert vllm(STRINGS, user(TWO_TEXTS)) == "[user:a\nb]>"
    assert sglang(STRINGS, user(TWO_TEXTS)) == "[user:a b]>"


def test_a_template_that_loops_over_content_gets_parts() -> None:
    assert vllm(PARTS, user(TWO_TEXTS), user("c")) == "[<a><b>][<c>]"
    assert sglang(PARTS, user(TWO_TEXTS), user("c")) == "[<a><b>][c]"


def test_sglang_takes_a_template_that_mentions_images_for_one_that_wants_parts() -> None:
    source = "{# image #}{% for x in messages %}{{ x.content | tojson }}{% endfor %}"
    assert json.loads(sglang(source, user(TWO_TEXTS))) == TWO_TEXTS
    assert json.loads(vllm(source, user(TWO_TEXTS))) == "a\nb"


@pytest.mark.parametrize("render", [vllm, sglang])
def test_a_part_that_is_not_text_is_a_reason(render: Any) -> None:
    with pytest.raises(Inexact, match='type "image_url" is not text'):
        render(STRINGS, user([{"type": "image_url", "image_url": {"url": "data:"}}]))
    with pytest.raises(Inexact, match="has no text"):
        render(STRINGS, user([{"type": "text"}]))


@pytest.mark.parametrize("render", [vllm, sglang])
def test_null_content_is_empty(render: Any) -> None:
    assert render(STRINGS, user(None), {"role": "system"}) == "[user:][system:]>"


def test_vllm_shows_a_template_only_what_belongs_to_the_role() -> None:
    rendered = vllm(DUMP, {**user("x"), "name": "n", "tool_call_id": "7", "refusal": None})
    assert json.loads(rendered) == [{"role": "user", "content": "x", "name": "n"}]


def test_arguments_of_tool_calls_become_objects() -> None:
    message = {"role": "assistant", "tool_calls": [CALL]}
    for render in (vllm, sglang):
        [seen, _] = json.loads(render(DUMP, message, user("x")))
        assert seen["tool_calls"][0]["function"] == {"name": "f", "arguments": {"x": 1}}
        assert seen["content"] == ""


def test_arguments_that_are_no_json_become_an_empty_object() -> None:
    broken = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}
    [seen] = json.loads(vllm(DUMP, broken))
    assert seen["tool_calls"][0]["function"]["arguments"] == {}


def test_vllm_carries_reasoning_under_both_names() -> None:
    [seen] = json.loads(vllm(DUMP, {"role": "assistant", "content": "x", "reasoning": "r"}))
    assert (seen["reasoning"], seen["reasoning_content"]) == ("r", "r")


def test_tools_are_filled_up_as_each_engine_does() -> None:
    assert vllm(TOOLS, user("x"), tools=[TOOL]) == (
        '[{"type": "function", "function": '
        '{"name": "f", "description": null, "parameters": {"type": "object"}}}]'
    )
    assert sglang(TOOLS, user("x"), tools=[TOOL]) == (
        '[{"type": "function", "function": {"description": null, "name": "f", '
        '"parameters": {"type": "object"}, "strict": false}}]'
    )


def test_vllm_leaves_out_what_it_does_not_know_of_a_tool() -> None:
    function = {"returns": "x", "strict": True, "description": "d", "name": "f"}
    tool = {"type": "function", "function": function, "note": 1}
    assert vllm(TOOLS, user("x"), tools=[tool]) == (
        '[{"type": "function", "function": '
        '{"name": "f", "description": "d", "parameters": null, "strict": true}}]'
    )
    with pytest.raises(Inexact, match="loaded later"):
        vllm(TOOLS, user("x"), tools=[{**tool, "defer_loading": True}])


def test_sglang_leaves_out_tools_that_were_not_chosen() -> None:
    other = {"type": "function", "function": {"name": "g"}}
    choice = {"type": "function", "function": {"name": "g"}}
    assert sglang(TOOLS, user("x"), tools=[TOOL], tool_choice="none") == "null"
    chosen = json.loads(sglang(TOOLS, user("x"), tools=[TOOL, other], tool_choice=choice))
    assert [tool["function"]["name"] for tool in chosen] == ["g"]


def test_sglang_tries_bare_functions_when_a_template_fails_with_tools() -> None:
    source = "{% if tools[0].function %}{{ raise_exception('bare, please') }}{% endif %}{{ tools[0].name }}"
    assert sglang(source, user("x"), tools=[TOOL]) == "f"
    with pytest.raises(Inexact, match="bare, please"):
        vllm(source, user("x"), tools=[TOOL])


@pytest.mark.parametrize("render", [vllm, sglang])
def test_a_tool_without_a_function_is_a_reason(render: Any) -> None:
    with pytest.raises(Inexact, match="a tool has no function"):
        render(TOOLS, user("x"), tools=[{"type": "web_search"}])


@pytest.mark.parametrize("render", [vllm, sglang])
def test_template_arguments_reach_the_template(render: Any) -> None:
    source = "{{ enable_thinking }} {{ reasoning_effort }}"
    fields = {"chat_template_kwargs": {"enable_thinking": False, "messages": 5}, "reasoning_effort": "low"}
    assert render(source, user("x"), **fields) == "False low"


def test_sglang_takes_no_reasoning_effort_for_no_thinking() -> None:
    assert sglang("{{ enable_thinking }}", user("x"), reasoning_effort="none") == "False"


def test_the_generation_prompt_can_be_left_out_on_vllm_only() -> None:
    assert vllm(STRINGS, user("x"), add_generation_prompt=False) == "[user:x]"
    assert sglang(STRINGS, user("x"), add_generation_prompt=False) == "[user:x]>"


def test_a_final_message_is_continued() -> None:
    final = {"role": "assistant", "content": "I think "}
    fields = {"continue_final_message": True, "add_generation_prompt": False}
    assert vllm(STRINGS, user("x"), final, **fields) == "[user:x][assistant:I think "
    assert vllm(PARTS, user("x"), final, **fields) == "[<x>][<I think "
    assert sglang(STRINGS, user("x"), final, **fields) == "[user:x]>I think "


def test_a_template_that_trims_content_continues_a_trimmed_message() -> None:
    source = "{% for m in messages %}[{{ m.content | trim }}]{% endfor %}"
    assert vllm(source, user("x "), continue_final_message=True, add_generation_prompt=False) == "[x"


def test_a_final_message_that_cannot_be_continued_is_a_reason() -> None:
    with pytest.raises(Inexact, match="drops the final message"):
        vllm("nothing", user("x"), continue_final_message=True)
    with pytest.raises(Inexact, match="has no text"):
        vllm(PARTS, user([]), continue_final_message=True)
    final = {"role": "assistant", "content": TWO_TEXTS}
    with pytest.raises(Inexact, match="list of parts"):
        sglang(
            PARTS.replace("m.", "message.").replace("m in", "message in"), final, continue_final_message=True
        )


def test_sglang_turns_a_final_assistant_message_into_a_users() -> None:
    assert sglang(STRINGS, user("x"), {"role": "Assistant", "content": "y"}) == "[user:x][user:y]>"
