"""The three kinds of body that are a conversation, as the one chat that an engine makes of each."""

from __future__ import annotations

from typing import TypeAlias

from router.prompts import anthropic, responses
from router.prompts.fields import Chat, Messages, Responses
from router.prompts.inexact import Inexact

Conversation: TypeAlias = Chat | Messages | Responses


def chat_of(fields: Conversation, engine: str) -> Chat:
    """Return the chat as `engine`, "vllm" or "sglang", makes it; raises Inexact when it cannot be known."""
    if isinstance(fields, Chat):
        return fields
    made = (
        anthropic.chat_of(fields, engine)
        if isinstance(fields, Messages)
        else responses.chat_of(fields, engine)
    )
    if not made.messages:
        raise Inexact("the conversation has no messages")
    return made
