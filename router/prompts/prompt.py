"""What the router knows of a prompt's tokens, and how it guesses when it knows nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from router.prompts.content import texts_of
from router.prompts.fields import Chat

if TYPE_CHECKING:
    from router.prompts.request import Request

BYTES_PER_TOKEN = 4
"""UTF-8 bytes per token, for estimates: English is near 4.5, CJK near 4, code near 3.5."""

TOKENS_PER_MESSAGE = 4
"""The role and separators that a chat template puts around one message, for estimates."""


@dataclass(slots=True)
class Prompt:
    """The token ids of a prompt as u32 little-endian bytes, and their count.

    When `exact` is False, `tokens` is empty, `count` is an estimate in tokens and `why` says why. `why` may
    also qualify an exact prompt ("the first of 3 prompts").
    """

    tokens: bytes
    count: int
    exact: bool
    why: str


def estimated(request: Request, why: str) -> Prompt:
    """Guess the count: UTF-8 bytes / 4, and 4 tokens more per chat message; images count for nothing."""
    if isinstance(request.prompt, bytes):
        count = len(request.prompt) // 4
    elif isinstance(request.prompt, str):
        count = len(request.prompt.encode()) // BYTES_PER_TOKEN
    else:
        count = _chat_estimate(request.fields) if isinstance(request.fields, Chat) else 0
    return Prompt(b"", max(1, count), exact=False, why=f"{why}; the count is estimated")


def _chat_estimate(chat: Chat) -> int:
    messages = chat.messages or []
    size = sum(len(text.encode()) for message in messages for text in texts_of(message.get("content")))
    return (size + _tools_size(chat)) // BYTES_PER_TOKEN + TOKENS_PER_MESSAGE * len(messages)


def _tools_size(chat: Chat) -> int:
    try:
        return len(msgspec.json.encode(chat.tools or []))
    except (OverflowError, RecursionError):  # an integer over 64 bits; any schema may hold one
        return 0
