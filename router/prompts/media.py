"""A conversation with images in it: what comes before the first of them is text, and its tokens are known.

The conversation is rendered with a mark in the place of everything that is no text. What a template puts in
front of the mark it puts in front of the image too; only the tokens that no continuation of the text could
change are kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from router.prompts import conversation
from router.prompts.content import TEXT_KINDS, is_text
from router.prompts.inexact import Inexact
from router.prompts.prompt import BYTES_PER_ID

if TYPE_CHECKING:
    from router.prompts.conversation import Conversation
    from router.prompts.fields import Chat, Message
    from router.prompts.tokenizer import ChatTokenizer

MARK = "\ue000media\ue000"

CONTINUATIONS = ("", "a", " ", "\n", "1", "<|", "'s", ".")
"""What might follow: each would join the last tokens of the text in another way."""


def tokens_before_media(
    tokenizer: ChatTokenizer, fields: Conversation, seconds: float
) -> tuple[bytes, str] | None:
    """Return the token ids before the first part that is no text, and where that is, or None for text only.

    Raises Inexact. Tokenises the text once for every continuation; the segment cache answers most of it.
    """
    chat = conversation.chat_of(fields, tokenizer.engine)
    messages = chat.messages or []
    first = next((at for at, message in enumerate(messages) if _has_media(message)), None)
    if first is None:
        return None
    marked = msgspec.structs.replace(chat, messages=[_marked(each, tokenizer.parts) for each in messages])
    before, mark, _ = tokenizer.render(marked, seconds).partition(MARK)
    if not mark:
        raise Inexact("the chat template drops the message with the image")
    return _stable(tokenizer, before, chat), f"messages[{first}]"


def _has_media(message: Message) -> bool:
    content = message.get("content")
    return isinstance(content, list) and any(map(_is_media, content))


def _is_media(part: str | dict[str, Any]) -> bool:
    return not is_text(part, TEXT_KINDS)


def _marked(message: Message, parts: bool) -> Message:
    """Put marks in; where a template sees one text per message, images may come anywhere in it."""
    content = message.get("content")
    if not isinstance(content, list) or not _has_media(message):
        return message
    if not parts:
        return {**message, "content": MARK}
    return {
        **message,
        "content": [{"type": "text", "text": MARK} if _is_media(part) else part for part in content],
    }


def _stable(tokenizer: ChatTokenizer, text: str, chat: Chat) -> bytes:
    """Return the ids of `text` that are the same whatever follows: never those of its last word."""
    special = bool(chat.add_special_tokens)
    texts = (_without_last_word(text), *(text + more for more in CONTINUATIONS))
    encodings = [tokenizer.ids(each, special=special) for each in texts]
    kept = min(map(len, encodings))
    for other in encodings[1:]:
        while encodings[0][:kept] != other[:kept]:
            kept -= BYTES_PER_ID
    return encodings[0][:kept]


def _without_last_word(text: str) -> str:
    """Cut at the last white space: no vocabulary joins what is before it with what comes after."""
    end = len(text)
    while end and not text[end - 1].isspace():
        end -= 1
    return text[:end].rstrip()
