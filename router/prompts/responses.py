"""A /v1/responses body as the chat that vLLM makes of it (read from its sources; no capture checks it yet).

Items join into messages: what an assistant thought, said and called, one after the other, is one message.
Tools become those of a chat. Whatever the engine takes from its own store cannot be known here, and no more
than tools that are not functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from router.prompts.content import checked, function_call
from router.prompts.fields import Chat
from router.prompts.inexact import Inexact

if TYPE_CHECKING:
    from router.prompts.fields import Message, Responses

_OPEN = ("in_progress", "incomplete")


def chat_of(fields: Responses, engine: str) -> Chat:
    """Return the chat; raise Inexact with the reason why it cannot be known."""
    _refuse(fields)
    messages: list[dict[str, Any]] = []
    if fields.instructions:
        messages.append({"role": "system", "content": fields.instructions})
    if isinstance(fields.input, str):
        messages.append({"role": "user", "content": fields.input})
    for item in fields.input if isinstance(fields.input, list) else ():
        if engine != "vllm" and item.get("type", "message") != "message":
            raise Inexact(f"an input item of type {str(item.get('type'))[:40]!r}, on {engine}")
        _add(messages, item)
    effort = (fields.reasoning or {}).get("effort")
    return Chat(
        messages=cast("list[Message]", messages),
        model=fields.model,
        cache_salt=fields.cache_salt,
        tools=[_tool(tool, engine) for tool in fields.tools] if fields.tools else None,
        chat_template_kwargs=fields.chat_template_kwargs,
        reasoning_effort=effort if isinstance(effort, str) else None,
    )


def _refuse(fields: Responses) -> None:
    if fields.previous_response_id is not None:
        raise Inexact("the conversation continues an earlier response, which only the engine has")
    if bytes(fields.prompt) != b"null":
        raise Inexact("a stored prompt is named, which only the engine has")
    last = fields.input[-1] if isinstance(fields.input, list) and fields.input else {}
    if last.get("status") in _OPEN:
        raise Inexact("the last item is to be continued")


def _tool(tool: dict[str, Any], engine: str) -> dict[str, Any]:
    kind = tool.get("type")
    if engine != "vllm" or kind != "function":
        raise Inexact(f"a tool of type {str(kind)[:40]!r} in a /v1/responses body, on {engine}")
    return {"type": "function", "function": {name: value for name, value in tool.items() if name != "type"}}


def _add(messages: list[dict[str, Any]], item: dict[str, Any]) -> None:
    match item.get("type", "message"):
        case "function_call":
            _of_assistant(messages).setdefault("tool_calls", []).append(
                function_call(item, item.get("call_id"))
            )
        case "function_call_output":
            output, call = checked(item.get("output")), item.get("call_id")
            messages.append({"role": "tool", "content": output, "tool_call_id": call})
        case "reasoning":
            _say(messages, "reasoning", _first_text(item.get("content") or item.get("summary")))
        case "message" if item.get("role") == "assistant":
            _say(messages, "content", _first_text(item.get("content")))
        case "message":
            messages.append({"role": str(item.get("role")), "content": checked(item.get("content"))})
        case other:
            raise Inexact(f"an input item of type {str(other)[:40]!r}")


def _of_assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the last message if it is the assistant's, or a new one."""
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant"})
    return messages[-1]


def _say(messages: list[dict[str, Any]], key: str, text: str) -> None:
    if _of_assistant(messages).get(key) is not None:
        messages.append({"role": "assistant"})
    messages[-1][key] = text


def _first_text(content: Any) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    first = content[0] if content else ""
    text = first.get("text", "") if isinstance(first, dict) else first
    return text if isinstance(text, str) else ""
