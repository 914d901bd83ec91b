"""A /v1/messages body (Anthropic) as the chat that an engine makes of it.

Read from the sources of vLLM and SGLang; no capture checks it yet. They differ in small things that matter:
how system texts are joined, whether texts are trimmed, what becomes of thoughts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from router.prompts.content import BILLING, checked, function_call
from router.prompts.fields import Chat
from router.prompts.inexact import Inexact

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.prompts.fields import Message, Messages, Turn

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}

Dict = dict[str, Any]


def chat_of(fields: Messages, engine: str) -> Chat:
    """Return the chat; raise Inexact with the reason why it cannot be known."""
    if engine != "vllm" and (fields.thinking is not None or fields.output_config is not None):
        raise Inexact("thinking and output_config depend on how the engine was started")
    if (fields.thinking or {}).get("type") == "disabled":
        raise Inexact("how the engine turns thinking off depends on what its template made of a trial")
    messages = _system(fields, engine)
    for turn in fields.messages or []:
        if turn["role"] != "system":
            messages.extend(_messages(turn, engine))
    effort = (fields.output_config or {}).get("effort")
    return Chat(
        messages=cast("list[Message]", messages),
        model=fields.model,
        cache_salt=fields.cache_salt,
        tools=None if fields.tools is None else [_tool(tool) for tool in fields.tools],
        tool_choice=_choice(fields.tool_choice),
        chat_template_kwargs=fields.chat_template_kwargs,
        reasoning_effort=effort if isinstance(effort, str) else None,
    )


def _system(fields: Messages, engine: str) -> list[Dict]:
    """Return the system message; others among the messages are joined to it only for some templates."""
    inline = [at for at, turn in enumerate(fields.messages or []) if turn["role"] == "system"]
    content = fields.system
    if inline:
        if engine != "vllm" or inline != [0] or fields.system:
            raise Inexact("system messages among the others")
        content = (fields.messages or [])[0]["content"]
        if isinstance(content, str) and content.startswith(BILLING):
            content = None
    joined = ("" if engine == "vllm" else "\n").join(_system_texts(content, engine))
    return [{"role": "system", "content": joined}] if joined else []


def _system_texts(content: str | list[Dict] | None, engine: str) -> Iterator[str]:
    if isinstance(content, str):
        if content and (engine == "vllm" or content.strip()):
            yield content
        return
    for block in content or ():
        text = block.get("text")
        if block.get("type") != "text" or not isinstance(text, str) or not text:
            continue
        if engine != "vllm" or not text.startswith(BILLING):
            yield text


def _messages(turn: Turn, engine: str) -> list[Dict]:
    """Return a turn's messages: its tool results as messages of their own, then the rest as one."""
    role, content = turn["role"], turn["content"]
    if isinstance(content, str):
        return [{"role": role, "content": content}]
    before: list[Dict] = []
    message: Dict = {"role": role}
    parts: list[Dict] = []
    for block in content:
        if block.get("type") == "tool_result" and role == "user":
            if engine != "vllm" and parts:
                before.append({"role": role, "content": _content(parts)})
                parts = []
            before.append(_tool_result(block))
        else:
            _add(message, parts, block, engine)
    if parts:
        message["content"] = _content(parts)
    elif role != "user" and engine != "vllm" and "tool_calls" not in message:
        message["content"] = ""
    keep = role != "user" or parts
    return [*before, message] if keep else before


def _content(parts: list[Dict]) -> str | list[Dict]:
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else list(parts)


def _add(message: Dict, parts: list[Dict], block: Dict, engine: str) -> None:
    kind = block.get("type")
    if kind == "text":
        text = checked(block.get("text"))
        if isinstance(text, list):
            raise Inexact("a text block without a text")
        if text or (engine != "vllm" and text is not None):
            parts.append({"type": "text", "text": text})
    elif kind == "tool_use":
        call = {"name": block.get("name") or "", "arguments": json.dumps(block.get("input") or {})}
        message.setdefault("tool_calls", []).append(function_call(call, block.get("id")))
    elif kind in ("thinking", "redacted_thinking") and engine != "vllm":
        raise Inexact("earlier thoughts are put back by the engine's reasoning parser")
    elif kind == "thinking":
        message["reasoning"] = message.get("reasoning", "") + str(block.get("thinking") or "")
    elif kind != "redacted_thinking":
        parts.append({"type": str(kind)})  # an image, or what is not known here: no text


def _tool_result(block: Dict) -> Dict:
    content = block.get("content")
    if isinstance(content, list):
        if not all(item.get("type") == "text" for item in content if isinstance(item, dict)):
            raise Inexact("a tool result that is not text")
        content = "\n".join(str(item.get("text", "")) for item in content if isinstance(item, dict))
    call = block.get("tool_use_id") or ""
    return {"role": "tool", "content": content if isinstance(content, str) else "", "tool_call_id": call}


def _tool(tool: Dict) -> Dict:
    if "input_schema" not in tool:
        raise Inexact("a tool without an input_schema")
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool["input_schema"],
    }
    return {"type": "function", "function": function}


def _choice(choice: Dict | None) -> str | Dict | None:
    kind = (choice or {}).get("type")
    if kind == "tool" and choice is not None:
        return {"type": "function", "function": {"name": choice.get("name")}}
    return _CHOICES.get(str(kind))
