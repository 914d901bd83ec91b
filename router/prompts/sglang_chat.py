"""How SGLang prepares a chat for the model's template (as its sources of 0.5 do; no capture checks it yet).

Text parts are joined by a blank. A template that mentions images, audio or video, or loops over the content
of `message`, `msg` or `m`, gets parts and strings as they came. A generation prompt is always added; a final
assistant message is either continued or turned into a user message. Fields that are null are dropped from
messages, but kept in tools. When the template fails with tools, it is given their bare functions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from router.prompts.content import arguments, function_of, part_texts
from router.prompts.inexact import Inexact, TooSlow
from router.prompts.template import RENDER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.prompts.fields import Chat, Message
    from router.prompts.template import ChatTemplate

TEXT_KINDS = frozenset({"text", "input_text"})

MEDIA = ("image", "audio", "video", "vision")


def wants_parts(template: ChatTemplate) -> bool:
    """Return whether SGLang gives lists of parts to the template."""
    loops = bool(template.content_owners & {"message", "msg", "m"})
    return loops or any(word in template.source for word in MEDIA)


def renderer(template: ChatTemplate) -> Callable[..., str]:
    """Return the function that renders a chat as SGLang does: of the chat, and of a limit in seconds."""
    return partial(_render, template, wants_parts(template))


def _render(template: ChatTemplate, parts: bool, chat: Chat, seconds: float = RENDER_SECONDS) -> str:
    messages = [_message(message, parts=parts) for message in chat.messages or []]
    prefix = _take_final(messages, keep_open=bool(chat.continue_final_message))
    variables = _variables(chat)
    variables["messages"] = messages
    try:
        return template.render(variables, seconds) + prefix
    except TooSlow:
        raise
    except Inexact:
        if not variables["tools"]:
            raise
        variables["tools"] = [tool["function"] for tool in variables["tools"]]
        return template.render(variables, seconds) + prefix


def _variables(chat: Chat) -> dict[str, Any]:
    variables: dict[str, Any] = {}
    if chat.reasoning_effort == "none":
        variables["thinking"] = variables["enable_thinking"] = False
    if chat.reasoning_effort is not None:
        variables["reasoning_effort"] = chat.reasoning_effort
    variables.update(chat.chat_template_kwargs or {})
    variables["tools"] = _tools(chat)
    variables["add_generation_prompt"] = True
    return variables


def _message(message: Message, *, parts: bool) -> dict[str, Any]:
    out: dict[str, Any] = {key: value for key, value in message.items() if value is not None}
    out["role"] = message["role"].lower()
    out["content"] = _content(message.get("content"), parts=parts and out["role"] != "tool")
    if "tool_calls" in out:
        out["tool_calls"] = [_call(call) for call in out["tool_calls"]]
    return out


def _content(content: str | list[str | dict[str, Any]] | None, *, parts: bool) -> str | list[dict[str, str]]:
    if not isinstance(content, list):
        return content or ""
    texts = part_texts(content, TEXT_KINDS)
    if parts:
        return [{"type": "text", "text": text} for text in texts]
    return " ".join(texts)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = function_of(call, "a tool call")
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": call.get("type", "function"),
        "function": {"name": function.get("name"), "arguments": arguments(function.get("arguments"))},
    }


def _tools(chat: Chat) -> list[dict[str, Any]] | None:
    choice = chat.tool_choice
    if not chat.tools or choice == "none":
        return None
    tools = [_tool(tool) for tool in chat.tools]
    if isinstance(choice, dict):
        chosen = function_of(choice, "tool_choice").get("name")
        return [tool for tool in tools if tool["function"]["name"] == chosen]
    return tools


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    function = function_of(tool, "a tool")
    full = {
        "description": function.get("description"),
        "name": function.get("name"),
        "parameters": function.get("parameters"),
        "strict": function.get("strict") or False,
    }
    return {"type": tool.get("type", "function"), "function": full}


def _take_final(messages: list[dict[str, Any]], *, keep_open: bool) -> str:
    """Take a final assistant message off to be continued, or make it the user's; return what to append."""
    final = messages[-1]
    if final["role"] != "assistant":
        return ""
    content = final["content"]
    if not keep_open:
        messages[-1] = {"role": "user", "content": content}
        return ""
    if not isinstance(content, str):
        raise Inexact("continue_final_message is set, but the final message is a list of parts")
    messages.pop()
    return content
