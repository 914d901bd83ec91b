"""Mistral's own tokenizers (tekken.json), by mistral-common 1.13: a chat becomes ids without a template.

vLLM uses them for models in Mistral's format. Text inside a message can never become a control token there.
"""

from __future__ import annotations

import importlib
from array import array
from typing import TYPE_CHECKING, Any, ClassVar

from router.errors import ConfigError
from router.prompts.content import part_texts
from router.prompts.inexact import Inexact

if TYPE_CHECKING:
    from pathlib import Path

    from mistral_common.tokens.tokenizers.mistral import MistralTokenizer

    from router.prompts.fields import Chat, Message

CALL_ID_CHARACTERS = 9
"""Mistral's tool call ids have nine characters; vLLM keeps the last nine of longer ones."""


class MistralEncoder:
    """mistral-common: 0.15 us per byte of text, 120 us for a short chat."""

    name: ClassVar[str] = "mistral-common"
    inline_bytes: ClassVar[int] = 4_096
    most_bytes: ClassVar[int] = 4_194_304

    def __init__(self, path: Path) -> None:
        """Load a tekken.json; raises ConfigError."""
        try:
            module = importlib.import_module("mistral_common.tokens.tokenizers.mistral")
        except ImportError:
            raise ConfigError(f"tokenizer: {path} needs the extra kv-router[mistral]") from None
        try:
            self._tokenizer: MistralTokenizer = module.MistralTokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 (it raises whatever its JSON makes it raise)
            raise ConfigError(f"tokenizer: {path} cannot be loaded: {error}") from None
        self._requests = importlib.import_module("mistral_common.protocol.instruct.request")

    def encode(self, text: str, *, special: bool) -> bytes:
        """See Encoder; `special` adds BOS."""
        ids = self._tokenizer.instruct_tokenizer.tokenizer.encode(text, bos=special, eos=False)
        return array("I", ids).tobytes()

    def encode_chat(self, chat: Chat) -> bytes:
        """Return a chat's token ids; raises Inexact for what mistral-common refuses."""
        options: dict[str, Any] = {"messages": [_message(each) for each in chat.messages or []]}
        if chat.tools is not None:
            options["tools"] = chat.tools
        if chat.continue_final_message:
            options["continue_final_message"] = True
        if chat.reasoning_effort is not None:
            options["reasoning_effort"] = chat.reasoning_effort
        try:
            request = self._requests.ChatCompletionRequest.from_openai(**options)
            return array("I", self._tokenizer.encode_chat_completion(request).tokens).tobytes()
        except Exception as error:  # noqa: BLE001 (its validators raise many things)
            reason = (str(error) or type(error).__name__).splitlines()[0][:200]
            raise Inexact(f"mistral-common refuses the chat: {reason}") from None


def _message(message: Message) -> dict[str, Any]:
    out: dict[str, Any] = {key: value for key, value in message.items() if value is not None}
    content = message.get("content")
    if isinstance(content, list):
        out["content"] = [{"type": "text", "text": text} for text in part_texts(content, {"text"})]
    if "tool_calls" in out:
        out["tool_calls"] = [{**call, "id": _call_id(call.get("id"))} for call in out["tool_calls"]]
    if "tool_call_id" in out:
        out["tool_call_id"] = _call_id(out["tool_call_id"])
    return out


def _call_id(value: Any) -> Any:
    return value[-CALL_ID_CHARACTERS:] if isinstance(value, str) else value
