"""The content of a chat message: a string, or a list of parts of which only text can be tokenised here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from router.prompts.inexact import Inexact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

TEXT_KINDS = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})
"""The kinds of content part that are text to one engine or the other."""

BILLING = "x-anthropic-billing-header"
"""How a line begins that vLLM leaves out of system texts: it changes with every request."""

Content = str | list[str | dict[str, Any]] | None


def checked(content: Any) -> Content:
    """Return `content` if it is what a chat message can hold; raise Inexact."""
    parts = content if isinstance(content, list) else ()
    if not isinstance(content, str | list | None) or not all(isinstance(part, str | dict) for part in parts):
        raise Inexact("a content that is neither text nor a list of parts")
    return content


def texts_of(content: Any) -> Iterator[str]:
    """Yield every text in `content`, passing over other parts."""
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        text = part.get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            yield text


def part_texts(parts: list[str | dict[str, Any]], kinds: Collection[str]) -> list[str]:
    """Return the text of each part; raise Inexact for a part that is none of `kinds`.

    A part's kind also names the key its text is under, except that any "..._text" kind uses "text".
    """
    return [part if isinstance(part, str) else _text(part, kinds) for part in parts]


def is_text(part: str | dict[str, Any], kinds: Collection[str]) -> bool:
    """Whether a part is text. Its type may be anything that JSON has, a list too."""
    if isinstance(part, str):
        return True
    kind = part.get("type")
    return isinstance(kind, str) and kind in kinds


def _text(part: dict[str, Any], kinds: Collection[str]) -> str:
    kind = part.get("type")
    if not is_text(part, kinds):
        raise Inexact(f"a content part of type {shown(kind)} is not text")
    text = part.get("text" if str(kind).endswith("text") else str(kind))
    if not isinstance(text, str):
        raise Inexact(f"a content part of type {shown(kind)} has no text")
    return text


def shown(value: Any) -> str:
    """Return a value out of a body as it is shown in a reason."""
    return json.dumps(value)[:40] if isinstance(value, str | int | None) else f"a {type(value).__name__}"


def function_of(holder: dict[str, Any], what: str) -> dict[str, Any]:
    """Return the `function` of a tool or a tool call; raise Inexact when there is none."""
    function = holder.get("function")
    if not isinstance(function, dict):
        raise Inexact(f"{what} has no function object")
    return function


def function_call(function: dict[str, Any], call_id: Any) -> dict[str, Any]:
    """Return an item that names a function and its arguments as a chat's tool call."""
    named = {"name": function.get("name"), "arguments": function.get("arguments")}
    return {"id": call_id, "type": "function", "function": named}
