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
    return "".join(vllm_chat.renderer(ChatTemplate(source, {}))(chat(*messages, **fields)))


def sglang(source: str, *messages: dict[str, Any], **fields: Any) -> str:
    return "".join(sglang_chat.renderer(ChatTemplate(source, {}))(chat(*messages, **fields)))


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
        '[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}, '
        '"description": null}, "defer_loading": null}]'
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


def test_sglang_turns_a_final_assistant_message_into_a_users() -> None:
    assert sglang(STRINGS, user("x"), {"role": "Assistant", "content": "y"}) == "[user:x][user:y]>"


def test_sglang_leaves_a_final_message_of_parts_to_the_assistant() -> None:
    final = {"role": "assistant", "content": TWO_TEXTS}
    for fields in ({}, {"continue_final_message": True}):
        [_, seen] = json.loads(sglang("{# image #}" + DUMP, user("x"), final, **fields))
        assert seen == {"role": "assistant", "content": TWO_TEXTS}
    assert sglang(STRINGS, user("x"), final) == "[user:x][user:a b]>"


def test_sglang_gives_the_text_to_continue_apart() -> None:
    render = sglang_chat.renderer(ChatTemplate(STRINGS, {}))
    final = {"role": "assistant", "content": "I think "}
    assert render(chat(user("x"), final, continue_final_message=True)) == ("[user:x]>", "I think ")


EFFORT = "{{ enable_thinking }} {{ thinking }} {{ reasoning_effort }}"


@pytest.mark.parametrize(
    ("fields", "on_vllm", "on_sglang"),
    [
        ({"reasoning_effort": "low"}, "True  low", "True True low"),
        ({"reasoning_effort": "none"}, "False  none", "False False none"),
        ({"reasoning_effort": 0.5}, "True  0.5", "True True 0.5"),
        ({"reasoning": {"effort": "high"}}, "  ", "True True high"),
        ({"reasoning": {"reasoning_effort": 0}}, "  ", "True True 0.0"),
        ({"reasoning": {"enabled": "yes"}}, "  ", "True True "),
        ({"reasoning": {"enable": False}}, "  ", "  "),
        ({"reasoning": "x"}, "  ", "  "),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"enable_thinking": None, "thinking": 1}},
            "None 1 low",
            "None 1 low",
        ),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "max"}},
            "True  low",
            "True True max",
        ),
    ],
)
def test_an_effort_turns_thinking_on_or_off(fields: dict[str, Any], on_vllm: str, on_sglang: str) -> None:
    assert vllm(EFFORT, user("x"), **fields) == on_vllm
    assert sglang(EFFORT, user("x"), **fields) == on_sglang


def test_sglang_takes_an_effort_of_null_among_the_template_arguments_for_none_given() -> None:
    fields = {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": None}}
    assert sglang("{{ reasoning_effort }}", user("x"), **fields) == "low"


@pytest.mark.parametrize(("effort", "expected"), [("low", "True"), ("high", ""), (None, "")])
def test_sglang_throws_the_switch_of_templates_that_have_one_for_a_low_effort(
    effort: str | None, expected: str
) -> None:
    source = "{# truncate_history_thinking #}{{ low_effort }}"
    assert sglang(source, user("x"), reasoning_effort=effort) == expected
    assert sglang("{{ low_effort }}", user("x"), reasoning_effort=effort) == ""


def test_a_template_whose_effort_sglang_may_change_is_a_reason() -> None:
    source = "{{ reasoning_mode_token }}{{ reasoning_effort or 'no_think' }}"
    with pytest.raises(Inexact, match="the engine sets the reasoning effort"):
        sglang(source, user("x"))
    assert vllm(source, user("x")) == "no_think"


@pytest.mark.parametrize("render", [vllm, sglang])
def test_a_request_with_a_chat_template_of_its_own_is_a_reason(render: Any) -> None:
    with pytest.raises(Inexact, match="brings its own chat template"):
        render(STRINGS, user("x"), chat_template_kwargs={"chat_template": "X"})


@pytest.mark.parametrize("effort", ["odd", "0.5", True, []])
def test_an_effort_that_sglang_does_not_know_is_a_reason(effort: Any) -> None:
    with pytest.raises(Inexact, match="a reasoning effort of"):
        sglang(EFFORT, user("x"), reasoning={"effort": effort})


DEVELOPER = {"role": "developer", "content": "be brief", "tools": [TOOL]}


def test_vllm_makes_a_developer_the_system_where_the_template_knows_none() -> None:
    assert json.loads(vllm(DUMP, DEVELOPER, user("x")))[0] == {"role": "system", "content": "be brief"}
    known = "{# 'developer' #}" + DUMP
    assert json.loads(vllm(known, DEVELOPER, user("x")))[0] == DEVELOPER
    system = {"role": "system", "content": [{"type": "text", "text": "a"}]}
    for source in (STRINGS, PARTS.replace("m.content is string", "m.content is string and true")):
        rendered = vllm(source, user("x"), DEVELOPER, system)
        assert "be brief\n\na" in rendered
        assert rendered.index("be brief") < rendered.index("x")
    assert vllm(STRINGS, system, user("x"), DEVELOPER) == "[system:a\n\nbe brief][user:x]>"
    assert vllm(STRINGS, user("x"), system) == "[user:x][system:a]>"


def test_template_arguments_win_over_the_tools_and_lose_to_the_documents_on_vllm() -> None:
    source = "{{ tools | tojson }}{{ documents | tojson }}"
    given = {"tools": [1], "documents": [2]}
    assert vllm(source, user("x"), tools=[TOOL], chat_template_kwargs=given) == "[1][2]"
    assert vllm(source, user("x"), documents=[{"text": "d"}], chat_template_kwargs=given) == (
        '[1][{"text": "d"}]'
    )
    empty = {"tools": None, "documents": None}
    assert vllm(source, user("x"), tools=[TOOL], chat_template_kwargs=empty).endswith("}]null")
    kept = {"continue_final_message": True, "tokenize": 5}
    assert vllm("{{ continue_final_message }}{{ tokenize }}", user("x"), chat_template_kwargs=kept) == ""
    with pytest.raises(Inexact, match="brings its own chat template"):
        vllm(STRINGS, user("x"), chat_template_kwargs={"chat_template": "y"})


def called(arguments: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}


@pytest.mark.parametrize("arguments", ["[]", "42", "true", "null", "", None, [1], 5, "[" * 99_999])
def test_arguments_that_are_no_object_become_an_empty_one_on_vllm(arguments: Any) -> None:
    [seen] = json.loads(vllm(DUMP, called(arguments)))
    assert seen["tool_calls"][0]["function"]["arguments"] == {}


@pytest.mark.parametrize("arguments", ["[]", "42", "{", "", '{"a": NaN}', '{"a": 99999999999999999999}'])
def test_arguments_that_sglang_refuses_or_changes_are_a_reason(arguments: str) -> None:
    with pytest.raises(Inexact, match="the JSON of an object"):
        sglang(DUMP, called(arguments), user("x"))


def test_sglang_leaves_arguments_that_are_no_text_and_those_of_others() -> None:
    assert json.loads(sglang(DUMP, called(None), user("x")))[0]["tool_calls"][0]["function"] == {
        "name": "f",
        "arguments": None,
    }
    other = {**called("{}"), "role": "tool"}
    assert json.loads(sglang(DUMP, other, user("x")))[0]["tool_calls"][0]["function"]["arguments"] == "{}"


HEADER = "x-anthropic-billing-header: cch=1;"


@pytest.mark.parametrize(
    ("content", "left"),
    [
        (HEADER + "\nbe brief", "be brief"),
        (HEADER, ""),
        ([{"type": "text", "text": HEADER}, {"type": "text", "text": "be brief"}], "be brief"),
        ([HEADER + "\nbe", "brief"], "be\nbrief"),
        ([{"type": "input_text", "text": HEADER}], HEADER),
    ],
)
def test_vllm_leaves_a_billing_header_out_of_system_texts(content: Any, left: str) -> None:
    assert vllm(STRINGS, {"role": "system", "content": content}) == f"[system:{left}]>"
    assert vllm(STRINGS, user(HEADER)) == f"[user:{HEADER}]>"
    assert sglang(STRINGS, {"role": "system", "content": HEADER}) == f"[system:{HEADER}]>"


def test_vllm_shows_a_template_the_fields_of_a_part_that_it_does_not_know() -> None:
    source = "{% for m in messages %}{% for part in m.content %}{{ part | tojson }}{% endfor %}{% endfor %}"
    part = {"mark": [1], "text": "a", "type": "text", "cache_control": {"x": 1}, "name": "n"}
    assert vllm(source, user([part])) == (
        '{"type": "text", "text": "a", "mark": [1], "cache_control": {"x": 1}}'
    )
    assert vllm(source, user([{"type": "refusal", "refusal": "no"}])) == '{"type": "text", "text": "no"}'


def test_vllm_leaves_empty_texts_out_where_it_joins_them() -> None:
    texts = [{"type": "text", "text": text} for text in ("a", "", "b")]
    assert vllm(STRINGS, user(texts)) == "[user:a\nb]>"
    assert vllm(PARTS, user(texts)) == "[<a><><b>]"
    assert vllm(PARTS, {"role": "tool", "content": texts}) == "[a\n\nb]"


def test_an_empty_reasoning_is_one_on_vllm() -> None:
    [seen] = json.loads(vllm(DUMP, {"role": "assistant", "reasoning": "", "reasoning_content": "r"}))
    assert seen["reasoning"] == ""


def test_sglang_shows_a_template_only_what_belongs_to_the_role() -> None:
    given = {"reasoning": "r", "name": "n", "tool_call_id": "7", "reasoning_content": None}
    [seen] = json.loads(sglang(DUMP, {**user("x"), **given}))
    assert seen == user("x")
    assert sglang(DUMP, {**given, "role": "Tool", "content": "y"}) == (
        '[{"role": "tool", "content": "y", "tool_call_id": "7", "name": "n"}]'
    )


def test_sglang_keeps_the_order_of_a_functions_keys_and_nothing_that_it_does_not_know() -> None:
    function = {"parameters": None, "x": 1, "strict": None, "name": "f"}
    assert sglang(TOOLS, user("x"), tools=[{"function": function, "defer_loading": True}]) == (
        '[{"type": "function", "function": {"parameters": null, "name": "f", "description": null, '
        '"defer_loading": true}, "defer_loading": true}]'
    )
    strict = {"strict": False, "name": "f", "description": "d"}
    assert sglang(TOOLS, user("x"), tools=[{"function": strict}]) == (
        '[{"type": "function", "function": {"strict": false, "name": "f", "description": "d", '
        '"parameters": null}, "defer_loading": null}]'
    )
    odd = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "varchar"}}}}
    with pytest.raises(Inexact, match="JSON Schema does not know"):
        sglang(TOOLS, user("x"), tools=[{"function": odd}])
    large = {"name": "f", "parameters": {"type": "integer", "maximum": 2**70}}
    assert str(2**70) in sglang(TOOLS, user("x"), tools=[{"function": large}])
