"""How vLLM prepares a chat for the model's template (0.32; checked against what a real engine answered).

Text parts are joined by a newline, or strings wrapped into parts when the template loops over content. Tools
are filled up with their optional fields (`"description": null`) in the order name, description, parameters.
A final message is continued as transformers does it: the rendering is cut where that message ends.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from router.prompts.content import TEXT_KINDS, arguments, function_of, part_texts
from router.prompts.inexact import Inexact
from router.prompts.template import RENDER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.prompts.fields import Chat, Message
    from router.prompts.template import ChatTemplate

END = "\ue000end\ue000 "
"""Put after the message to continue; the blank at its end shows whether the template trims content."""


def wants_parts(template: ChatTemplate) -> bool:
    """Return whether vLLM gives lists of parts to the template."""
    return bool(template.content_owners & template.message_names)


def renderer(template: ChatTemplate) -> Callable[..., str]:
    """Return the function that renders a chat as vLLM does: of the chat, and of a limit in seconds."""
    return partial(_render, template, wants_parts(template))


def _render(template: ChatTemplate, parts: bool, chat: Chat, seconds: float = RENDER_SECONDS) -> str:
    messages = [_message(message, parts=parts) for message in chat.messages or []]
    variables: dict[str, Any] = dict(chat.chat_template_kwargs or {})
    if chat.reasoning_effort is not None:
        variables["reasoning_effort"] = chat.reasoning_effort
    variables["messages"] = messages
    variables["tools"] = None if chat.tools is None else [_tool(tool) for tool in chat.tools]
    variables["documents"] = chat.documents
    variables["add_generation_prompt"] = chat.add_generation_prompt is not False
    if not chat.continue_final_message:
        return template.render(variables, seconds)
    return _continued(template, variables, seconds)


def _message(message: Message, *, parts: bool) -> dict[str, Any]:
    role = message["role"]
    out: dict[str, Any] = {"role": role, "content": _content(message, parts=parts and role != "tool")}
    if role == "assistant":
        _add_assistant_fields(out, message)
    elif role == "tool" and "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    elif role == "developer":
        out["tools"] = message.get("tools")
    if message.get("name") is not None:
        out["name"] = message["name"]
    return out


def _content(message: Message, *, parts: bool) -> str | list[dict[str, str]]:
    content = message.get("content")
    if isinstance(content, str) and not parts:
        return content
    texts = [content] if isinstance(content, str) else part_texts(content or [], TEXT_KINDS)
    if parts:
        return [{"type": "text", "text": text} for text in texts]
    return "\n".join(texts)


def _add_assistant_fields(out: dict[str, Any], message: Message) -> None:
    calls = message.get("tool_calls")
    if calls:
        out["tool_calls"] = [_call(call) for call in calls]
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    if reasoning is not None:
        out["reasoning"] = out["reasoning_content"] = reasoning


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = function_of(call, "a tool call")
    return {**call, "function": {**function, "arguments": arguments(function.get("arguments"))}}


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
