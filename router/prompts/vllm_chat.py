"""How vLLM prepares a chat for the model's template (0.32; checked against what a real engine answered).

Text parts are joined by a newline, empty ones left out, or strings wrapped into parts when the template loops
over content. Tools are filled up with their optional fields (`"description": null`) in the order name,
description, parameters. A final message is continued as transformers does it: the rendering is cut where that
message ends.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from router.prompts.content import BILLING, TEXT_KINDS, function_of, part_texts
from router.prompts.inexact import Inexact
from router.prompts.template import RENDER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from router.prompts.fields import Chat, Message
    from router.prompts.template import ChatTemplate

END = "\ue000end\ue000 "
"""Put after the message to continue; the blank at its end shows whether the template trims content."""

UNSET = (None, "auto")
"""Values of a request's fields that do not win over those in its chat_template_kwargs."""

NOT_PASSED = frozenset(
    {
        *("padding", "truncation", "max_length", "return_tensors", "return_dict", "tokenizer_kwargs"),
        *("return_assistant_tokens_mask", "continue_final_message", "tokenize"),
    }
)
"""Template arguments that transformers keeps for itself: a template does not see them."""

PART_FIELDS = frozenset(
    {
        *("type", "text", "refusal", "thinking", "closed", "name", "uuid", "data", "prompt_cache_breakpoint"),
        *("image_url", "image_pil", "image_embeds", "audio_url", "audio_embeds", "input_audio"),
        *("video_url", "video_embeds", "file"),
    }
)
"""The fields of content parts that vLLM and OpenAI define; a template sees any others as they came."""


def wants_parts(template: ChatTemplate) -> bool:
    """Return whether vLLM gives lists of parts to the template."""
    return bool(template.content_owners & template.message_names)


def renderer(template: ChatTemplate) -> Callable[..., tuple[str, str]]:
    """Return the function that renders a chat as vLLM does: of the chat, and of a limit in seconds.

    It returns the text, and "": nothing of it is tokenised by itself.
    """
    developers = '"developer"' in template.source or "'developer'" in template.source
    return partial(_render, template, wants_parts(template), developers)


def _render(
    template: ChatTemplate, parts: bool, developers: bool, chat: Chat, seconds: float = RENDER_SECONDS
) -> tuple[str, str]:
    """Render; a template that knows no role developer (not `developers`) is given system messages."""
    messages = [_message(message, parts=parts) for message in chat.messages or []]
    if not developers and "developer" in [message["role"] for message in messages]:
        messages = _one_system(messages)
    variables = _variables(chat)
    variables["messages"] = messages
    if not chat.continue_final_message:
        return template.render(variables, seconds), ""
    return _continued(template, variables, seconds), ""


def _variables(chat: Chat) -> dict[str, Any]:
    """Return what the template is given beside the messages.

    Template arguments win over what belongs to the model, which are the tools; other fields win over them.
    """
    variables: dict[str, Any] = {"documents": chat.documents}
    given = chat.chat_template_kwargs
    if given:
        variables.update(_named(given, chat))
    if "tools" not in variables:
        variables["tools"] = None if chat.tools is None else [_tool(tool) for tool in chat.tools]
    effort = chat.reasoning_effort
    if effort is not None:
        variables["reasoning_effort"] = effort
        if "enable_thinking" not in (given or ()):
            variables["enable_thinking"] = effort != "none"
    variables["add_generation_prompt"] = chat.add_generation_prompt is not False
    return variables


def _named(given: dict[str, Any], chat: Chat) -> dict[str, Any]:
    """Return the template arguments that a template sees and no other field wins over."""
    if "chat_template" in given:
        raise Inexact("the request brings its own chat template")
    named = {name: value for name, value in given.items() if name not in NOT_PASSED}
    if named.get("tools") in UNSET:
        named.pop("tools", None)
    if chat.documents is not None:
        named.pop("documents", None)
    return named


def _one_system(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make developers' messages the system's, and put all of these into one, in front."""
    changed = [
        {**{name: value for name, value in message.items() if name != "tools"}, "role": "system"}
        if message["role"] == "developer"
        else message
        for message in messages
    ]
    system = [message for message in changed if message["role"] == "system"]
    if len(system) == 1 and changed[0] is system[0]:
        return changed
    texts = [text for text in map(_system_text, system) if text]
    return [
        {"role": "system", "content": "\n\n".join(texts)},
        *(message for message in changed if message["role"] != "system"),
    ]


def _system_text(message: dict[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _message(message: Message, *, parts: bool) -> dict[str, Any]:
    role = message["role"]
    out: dict[str, Any] = {"role": role, "content": _content(message, parts=parts)}
    if role == "assistant":
        _add_assistant_fields(out, message)
    elif role == "tool" and "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    elif role == "developer":
        out["tools"] = message.get("tools")
    if message.get("name") is not None:
        out["name"] = message["name"]
    return out


def _content(message: Message, *, parts: bool) -> str | list[dict[str, Any]]:
    content = message.get("content")
    system = message["role"] == "system"
    if isinstance(content, str) and not parts and not (system and content.startswith(BILLING)):
        return content
    given: list[str | dict[str, Any]] = [content] if isinstance(content, str) else content or []
    pairs: Iterator[tuple[Any, str]] = zip(given, part_texts(given, TEXT_KINDS), strict=True)
    if system:
        pairs = _without_billing(pairs)
    if not parts:
        return "\n".join(text for _, text in pairs if text)
    if message["role"] == "tool":
        return "\n".join(text for _, text in pairs)
    return [{"type": "text", "text": text, **_others(part)} for part, text in pairs]


def _others(part: str | dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a part that only the template may know."""
    if isinstance(part, str):
        return {}
    return {name: value for name, value in part.items() if name not in PART_FIELDS}


def _without_billing(pairs: Iterator[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    """Cut off the line that some clients put before a system text; it is another in every request."""
    for part, text in pairs:
        if not text.startswith(BILLING) or not (isinstance(part, str) or part["type"] == "text"):
            yield part, text
        elif rest := text.partition("\n")[2]:
            yield part, rest


def _add_assistant_fields(out: dict[str, Any], message: Message) -> None:
    calls = message.get("tool_calls")
    if calls:
        out["tool_calls"] = [_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        out["reasoning"] = out["reasoning_content"] = reasoning


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = function_of(call, "a tool call")
    return {**call, "function": {**function, "arguments": _arguments(function.get("arguments"))}}


def _arguments(value: Any) -> dict[str, Any]:
    """Return a tool call's arguments as an object; what is none becomes an empty one."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return what vLLM's own model of a tool dumps: these fields in this order, and nothing else."""
    function = function_of(tool, "a tool")
    if tool.get("defer_loading") is not None or function.get("defer_loading") is not None:
        raise Inexact("a tool that is loaded later")
    full = {name: function.get(name) for name in ("name", "description", "parameters")}
    if function.get("strict") is not None:
        full["strict"] = function["strict"]
    return {"type": tool.get("type", "function"), "function": full}


def _continued(template: ChatTemplate, variables: dict[str, Any], seconds: float) -> str:
    final = variables["messages"][-1]
    content = final["content"]
    if isinstance(content, list) and content:
        content[-1]["text"] += END
    elif isinstance(content, str):
        final["content"] = content + END
    else:
        raise Inexact("continue_final_message is set, but the final message has no text")
    before, mark, after = template.render(variables, seconds).rpartition(END.rstrip())
    if not mark:
        raise Inexact("continue_final_message is set, but the chat template drops the final message")
    return before if after.startswith(" ") else before.rstrip()
