"""How SGLang prepares a chat for the model's template (as the sources of 0.5.23; no capture checks it).

Text parts are joined by a blank. A template that mentions images, audio or video, or loops over the content
of `message`, `msg` or `m`, gets parts and strings as they came. A generation prompt is always added; a final
assistant message of one text is either continued, its tokens made apart from those before it, or turned into
a user message. Fields that are null are dropped from messages, but not all of them from tools, whose keys
keep the client's order. When the template fails with tools, it is given their bare functions.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from router.prompts.content import function_of, part_texts, shown
from router.prompts.inexact import Inexact, TooSlow
from router.prompts.template import RENDER_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.prompts.fields import Chat, Message
    from router.prompts.template import ChatTemplate

TEXT_KINDS = frozenset({"text", "input_text"})

MEDIA = ("image", "audio", "video", "vision")

# Templates that know a low effort by a switch of their own (Nemotron's) name both.
_LOW_EFFORT = ("low_effort", "truncate_history_thinking")
# What SGLang knows Hunyuan's templates by, whose effort it changes if it runs with their reasoning parser.
_OWN_EFFORT = ("reasoning_effort", "reasoning_mode_token", "no_think")
FIELDS = ("tool_call_id", "name", "reasoning_content", "tool_calls", "tools")
"""What a message may have beside role and content, unless it is a user's, in the engine's order."""

OPTIONAL = ("strict", "defer_loading")
"""The fields of a function that are dropped when they are null."""

EFFORTS = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "ultra", "max"})

_ODD_TYPE = re.compile(rb'"type":"(?!(?:string|number|integer|object|array|boolean|null)")')
"""A type that JSON Schema does not know; the engine puts its own names for some of them."""

_YES = frozenset({"1", "true", "yes", "y", "on"})


def wants_parts(template: ChatTemplate) -> bool:
    """Return whether SGLang gives lists of parts to the template."""
    loops = bool(template.content_owners & {"message", "msg", "m"})
    return loops or any(word in template.source for word in MEDIA)


def renderer(template: ChatTemplate) -> Callable[..., tuple[str, str]]:
    """Return the function that renders a chat as SGLang does: of the chat, and of a limit in seconds.

    It returns the text, and what follows it but is tokenised by itself.
    """
    source = template.source
    own, low = (all(name in source for name in names) for names in (_OWN_EFFORT, _LOW_EFFORT))
    return partial(_render, template, wants_parts(template), own, low)


def _render(
    template: ChatTemplate, parts: bool, own: bool, low: bool, chat: Chat, seconds: float = RENDER_SECONDS
) -> tuple[str, str]:
    """Render; `own`: the engine sets the effort itself; `low`: the template has a name of its own for low."""
    if own:
        raise Inexact("the engine sets the reasoning effort of this template by its reasoning parser")
    messages = [_message(message, parts=parts) for message in chat.messages or []]
    prefix = _take_final(messages, keep_open=bool(chat.continue_final_message))
    variables = _variables(chat, low=low)
    variables["messages"] = messages
    try:
        return template.render(variables, seconds), prefix
    except TooSlow:
        raise
    except Inexact:
        if not variables["tools"]:
            raise
        variables["tools"] = [tool["function"] for tool in variables["tools"]]
        return template.render(variables, seconds), prefix


def _variables(chat: Chat, *, low: bool) -> dict[str, Any]:
    """Return what the template is given beside the messages; template arguments win over the effort."""
    variables: dict[str, Any] = {}
    effort, thinking = _effort(chat)
    given = chat.chat_template_kwargs or {}
    if "chat_template" in given:
        raise Inexact("the request brings its own chat template")
    if thinking is not None:
        variables["thinking"] = variables["enable_thinking"] = thinking
    if effort is not None:
        variables["reasoning_effort"] = effort
    if low and effort == "low":
        variables["low_effort"] = True
    variables.update(given)
    if effort is not None and given.get("reasoning_effort", effort) is None:
        variables["reasoning_effort"] = effort
    variables["tools"] = _tools(chat)
    variables["add_generation_prompt"] = True
    return variables


def _effort(chat: Chat) -> tuple[str | float | None, bool | None]:
    """Return the effort of `reasoning` or `reasoning_effort`, and whether to think, as far as it is said."""
    effort, enabled = chat.reasoning_effort, False
    if isinstance(chat.reasoning, dict):
        given = chat.reasoning.get("effort")
        given = chat.reasoning.get("reasoning_effort") if given is None else given
        effort = effort if given is None else given
        enabled = _enabled(chat.reasoning)
    if effort is None:
        return None, enabled or None
    if isinstance(effort, str) and effort in EFFORTS:
        return effort, effort != "none"
    if isinstance(effort, int | float) and not isinstance(effort, bool):
        return float(effort), True
    raise Inexact(f"a reasoning effort of {shown(effort)}")


def _enabled(reasoning: dict[str, Any]) -> bool:
    given = reasoning.get("enabled")
    given = reasoning.get("enable") if given is None else given
    return given.strip().lower() in _YES if isinstance(given, str) else bool(given)


def _message(message: Message, *, parts: bool) -> dict[str, Any]:
    role, content = message["role"].lower(), message.get("content")
    out: dict[str, Any] = {"role": role, "content": _content(content, parts=parts and role != "tool")}
    if role == "user":
        return out
    for name in FIELDS:
        value = message.get(name)
        if value is not None:
            out[name] = value
    if "tool_calls" in out:
        out["tool_calls"] = [_call(call, role) for call in out["tool_calls"]]
    if "tools" in out:
        out["tools"] = [_tool(tool) for tool in out["tools"]]
    if isinstance(out["content"], list):
        out["content"] = out.pop("content")
    return out


def _content(content: str | list[str | dict[str, Any]] | None, *, parts: bool) -> str | list[dict[str, str]]:
    if not isinstance(content, list):
        return content or ""
    texts = part_texts(content, TEXT_KINDS)
    if parts:
        return [{"type": "text", "text": text} for text in texts]
    return " ".join(texts)


def _call(call: dict[str, Any], role: str) -> dict[str, Any]:
    function = function_of(call, "a tool call")
    given = function.get("arguments")
    if role == "assistant" and isinstance(given, str):
        given = _arguments(given)
    return {
        "id": call.get("id"),
        "index": call.get("index"),
        "type": call.get("type", "function"),
        "function": {"name": function.get("name"), "arguments": given},
    }


def _arguments(text: str) -> dict[str, Any]:
    """Return a call's arguments as an object; the engine refuses anything else, NaN too."""
    try:
        value = json.loads(text, parse_int=_whole, parse_constant=_refused)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Inexact("the arguments of a tool call are not the JSON of an object")
    return value


def _whole(digits: str) -> int:
    """Return a number of 64 bits; the engine makes larger ones inexact."""
    value = int(digits)
    return value if -(2**63) <= value < 2**64 else _refused(digits)


def _refused(text: str) -> NoReturn:
    raise ValueError(text)


def _tools(chat: Chat) -> list[dict[str, Any]] | None:
    choice = chat.tool_choice
    if not chat.tools or choice == "none":
        return None
    tools = [_tool(tool) for tool in chat.tools]
    if isinstance(choice, dict):
        chosen = function_of(choice, "tool_choice").get("name")
        return [tool for tool in tools if tool["function"]["name"] == chosen] or None
    return tools


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return what SGLang's own model of a tool dumps; a function's keys are in the order the client wrote."""
    function = function_of(tool, "a tool")
    if _ODD_TYPE.search(_encoded(function.get("parameters"))):
        raise Inexact("a tool whose parameters are of a type that JSON Schema does not know")
    later = tool.get("defer_loading")
    full = {name: function.get(name) for name in ("description", "name", "parameters", *OPTIONAL)}
    if full["defer_loading"] is None:
        full["defer_loading"] = later
    kept = [name for name in full if name not in OPTIONAL or full[name] is not None]
    order = [name for name in function if name in kept]
    order += [name for name in kept if name not in function]
    return {
        "type": tool.get("type", "function"),
        "function": {name: full[name] for name in order},
        "defer_loading": later,
    }


def _encoded(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (OverflowError, RecursionError):  # an integer over 64 bits; any schema may hold one
        return b""


def _take_final(messages: list[dict[str, Any]], *, keep_open: bool) -> str:
    """Take a final assistant message off to be continued, or make it the user's; return what to append."""
    final = messages[-1]
    content = final["content"]
    if final["role"] != "assistant" or not isinstance(content, str):
        return ""
    if keep_open:
        messages.pop()
        return content
    messages[-1] = {"role": "user", "content": content}
    return ""
