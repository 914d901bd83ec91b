"""The content of a chat message: a string, or a list of parts of which only text can be tokenised here."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from router.prompts.inexact import Inexact

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

TEXT_KINDS = frozenset({"text", "input_text", "output_text", "refusal", "thinking"})
"""The kinds of content part that are text to one engine or the other."""

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


def _text(part: dict[str, Any], kinds: Collection[str]) -> str:
    kind = part.get("type")
    if kind not in kinds:
        raise Inexact(f"a content part of type {json.dumps(kind)[:40]} is not text")
    text = part.get("text" if str(kind).endswith("text") else str(kind))
    if not isinstance(text, str):
        raise Inexact(f"a content part of type {json.dumps(kind)[:40]} has no text")
    return text


def arguments(value: Any) -> Any:
    """Return a tool call's arguments as templates expect them: an object, not the JSON text of one.

    What is no JSON becomes an empty object, as in vLLM 0.32.
    """
    if isinstance(value, str):
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict | list) else {}


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
