"""What the router knows of a prompt's tokens, and how it guesses when it knows nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from router.prompts.content import texts_of
from router.prompts.fields import Chat, Completions, Generate, Messages, Other, Responses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from router.prompts.request import Request

BYTES_PER_ID = 4
"""A token id is an unsigned 32-bit number."""

BYTES_PER_TOKEN = 4
"""UTF-8 bytes per token, for estimates: English is near 4.5, CJK near 4, code near 3.5."""

BYTES_PER_EMBEDDING = 16_384
"""Bytes of a body per vector, for estimates: 4,096 numbers of 16 bits are 11 KB in base64, more as JSON."""

TOKENS_PER_MESSAGE = 3
"""The separators that a chat template puts around one message, for estimates."""

MAX_TEXT_BYTES = 1024 * 1024
"""How much of a text stands in for its tokens: hashing so much takes 2 ms of the event loop."""

Source = Literal["tokens", "worker", "text", "none"]
"""Where a prompt's blocks come from: our token ids, the worker's own, the text's bytes, nowhere."""


@dataclass(slots=True)
class Prompt:
    """What a request's blocks are made of, and its length in tokens.

    `tokens`: ids as u32 little-endian bytes; with source "text" the text's own bytes, four to a "token",
    which must never be matched against anything but the like. `count`: tokens of all prompts of the body.
    `exact`: both are the engine's own. `why`: what they are worth when they are not, or what else is to be
    said. `reusable`: how many of the leading tokens an engine can take from its cache at most.
    """

    tokens: bytes
    count: int
    exact: bool
    why: str
    source: Source
    reusable: int


def known(tokens: bytes, others: int, why: str = "", source: Source = "tokens") -> Prompt:
    """Return an exact prompt; `others` are the tokens of further prompts in the body.

    An engine always computes the last token of a prompt anew.
    """
    count = len(tokens) // BYTES_PER_ID
    return Prompt(tokens, count + others, exact=True, why=why, source=source, reusable=max(0, count - 1))


def estimated(request: Request, why: str) -> Prompt:
    """Guess the count: UTF-8 bytes / 4, and 3 tokens more per chat message; images count for nothing.

    The text's bytes, roles included, stand in for its tokens, MAX_TEXT_BYTES of them at most; of longer ones
    the count is a quarter of the body's size.
    """
    fields = request.fields
    why = f"{why}; the count is estimated"
    if isinstance(request.prompt, bytes):
        count = sum(len(prompt) for prompt in (request.prompt, *request.rest)) // BYTES_PER_ID
        return Prompt(b"", max(1, count), exact=False, why=why, source="none", reusable=0)
    if isinstance(fields, Other) or request.embedded or request.unread:
        unit = BYTES_PER_EMBEDDING if request.embedded else BYTES_PER_TOKEN
        count = max(1, request.size // unit)
        return Prompt(b"", count, exact=False, why=why, source="none", reusable=0)
    text = b"".join(_first(_pieces(request)))
    size = request.size
    if size <= MAX_TEXT_BYTES:
        size = len(text) + sum(len(prompt.encode()) for prompt in request.rest if isinstance(prompt, str))
    count = max(1, size // BYTES_PER_TOKEN + TOKENS_PER_MESSAGE * _messages(fields))
    whole = len(text) // BYTES_PER_ID
    return Prompt(
        text[: whole * BYTES_PER_ID],
        count,
        exact=False,
        why=why,
        source="text",
        reusable=min(whole, count - 1),
    )


def _messages(fields: Any) -> int:
    if isinstance(fields, Chat | Messages):
        return len(fields.messages or ())
    if isinstance(fields, Responses):
        return len(fields.input or ()) if isinstance(fields.input, list) else 1
    return 0


def _first(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield pieces until they are MAX_TEXT_BYTES."""
    left = MAX_TEXT_BYTES
    for piece in pieces:
        yield piece[:left]
        left -= len(piece)
        if left <= 0:
            return


def _pieces(request: Request) -> Iterator[bytes]:
    """Yield a request's text piece by piece, so that the next turn of a conversation begins with this one."""
    fields = request.fields
    if isinstance(fields, Completions | Generate):
        yield str(request.prompt or "")[:MAX_TEXT_BYTES].encode()
        return
    assert not isinstance(fields, Other)  # noqa: S101 - it has no text that is known
    yield _json(fields.tools)
    if isinstance(fields, Responses):
        yield from _turn("system", fields.instructions)
        items = (
            fields.input if isinstance(fields.input, list) else [{"role": "user", "content": fields.input}]
        )
        for item in items:
            yield from _turn(
                str(item.get("role") or item.get("type")), item.get("content") or item.get("output")
            )
        return
    if isinstance(fields, Messages):
        yield from _turn("system", fields.system)
    for message in fields.messages or ():
        yield from _turn(message["role"], message.get("content"))
        yield _json(message.get("tool_calls"))


def _turn(role: str, content: Any) -> Iterator[bytes]:
    if content is not None:
        yield role.encode()
        for text in texts_of(content):
            yield text[:MAX_TEXT_BYTES].encode()


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value) if value else b""
    except (OverflowError, RecursionError):  # an integer over 64 bits; any schema may hold one
        return b""
