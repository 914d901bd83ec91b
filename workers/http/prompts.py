"""The prompts of a request body as token ids: texts, ids, and chats, rendered by the tokenizer's template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import jinja2

from workers.http.body import mapping
from workers.http.errors import BadRequest

if TYPE_CHECKING:
    from workers.http.edge import Edge
    from workers.tokenizer import Tokenizer

Tokens: TypeAlias = list[int]
_MOST_U32 = 2**32 - 1


def prompts_of(value: object, tokenizer: Tokenizer, name: str) -> list[Tokens]:
    """Return the token ids of a text, a list of ids, or a list of either; raises BadRequest."""
    if isinstance(value, list) and value and not isinstance(value[0], int):
        prompts = [_one(entry, tokenizer, name) for entry in value]
    else:
        prompts = [_one(value, tokenizer, name)]
    if not all(prompts):
        raise BadRequest(f"{name} must not be empty", param=name)
    return prompts


def _one(value: object, tokenizer: Tokenizer, name: str) -> Tokens:
    if isinstance(value, str):
        return tokenizer.encode(value)
    if isinstance(value, list) and all(type(token) is int and 0 <= token <= _MOST_U32 for token in value):
        return value
    raise BadRequest(f"{name} must be a text or a list of token ids", param=name)


def chat_tokens(edge: Edge, body: dict[str, Any]) -> Tokens:
    """Return the ids of a chat body's rendered messages; raises BadRequest when they cannot be rendered."""
    messages = body.get("messages")
    if not (isinstance(messages, list) and messages and all(isinstance(entry, dict) for entry in messages)):
        raise BadRequest("messages must be a list of at least one message", param="messages")
    joint = "\n" if edge.spec.engine == "vllm" else " "
    settings = {"add_generation_prompt": True, "tools": _tools(body)} | mapping(body, "chat_template_kwargs")
    rendered = [_message(entry, joint) for entry in messages]
    try:
        return edge.tokenizer.encode_chat(rendered, **settings)
    except (jinja2.TemplateError, LookupError, TypeError, ValueError, ArithmeticError) as error:
        raise BadRequest(f"cannot render the messages: {error}", param="messages") from error


def _tools(body: dict[str, Any]) -> Any:
    tools = body.get("tools")
    if tools is None or (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
        return tools
    raise BadRequest("tools must be a list of objects", param="tools")


def _message(message: dict[str, Any], joint: str) -> dict[str, Any]:
    if not isinstance(message.get("role"), str):
        raise BadRequest("the role of a message must be a string", param="messages")
    content = message.get("content")
    if isinstance(content, list):
        content = joint.join(text for part in content if (text := _text(part)) is not None)
    if content is not None and not isinstance(content, str):
        wanted = "the content of a message must be a string or a list of parts"
        raise BadRequest(wanted, param="messages")
    return {**message, "content": content or ""}


def _text(part: object) -> str | None:
    """Return what a part of a message says, None for one that is no text."""
    text = part.get("text") if isinstance(part, dict) else part
    if isinstance(text, str) or (text is None and isinstance(part, dict)):
        return text
    raise BadRequest("a part of a message must be an object, its text a string", param="messages")
