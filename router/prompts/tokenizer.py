"""A model's tokenizer and chat template, loaded from its files.

fastokens (20 to 140 times as fast) serves a model only after it gave the same ids as Hugging Face's
`tokenizers` on every text of `samples`; else `tokenizers` serves it, and `why` says so. Loading blocks for
one to two seconds: call it from a thread.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

import fastokens
import tokenizers

from router.errors import ConfigError
from router.prompts import samples, sglang_chat, vllm_chat
from router.prompts.files import ModelFiles, read_model_files
from router.prompts.inexact import Inexact
from router.prompts.template import ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from router.prompts.fields import Chat

RENDERERS: dict[str, Callable[[ChatTemplate], Callable[[Chat], str]]] = {
    "vllm": vllm_chat.renderer,
    "sglang": sglang_chat.renderer,
}
"""How each engine prepares a chat for the template."""


class Encoder(Protocol):
    """Text to token ids.

    `inline_bytes` is the length of a body up to which tokenising takes about 1 ms of one core.
    """

    name: ClassVar[str]
    inline_bytes: ClassVar[int]

    def encode(self, text: str, *, special: bool) -> bytes:
        """Return ids as u32 little-endian bytes; `special` adds what the post-processor adds (BOS, ...)."""


class FastokensEncoder:
    """fastokens 0.3.5: releases the GIL.

    200 tokens take 30 us, 32 KiB of text 0.4 to 1.9 ms (English to random letters).
    """

    name: ClassVar[str] = "fastokens"
    inline_bytes: ClassVar[int] = 32_768

    def __init__(self, path: Path) -> None:
        self._tokenizer = fastokens.Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, special: bool) -> bytes:
        """See Encoder."""
        ids: bytes = self._tokenizer.encode_batch_flat([text], special)[0]
        return ids


class TokenizersEncoder:
    """Hugging Face's tokenizers 0.23: 0.5 us per byte of text.

    Its `encode` keeps the GIL for as long as it runs (measured: 400 ms for 400 KB); its batch calls do not.
    """

    name: ClassVar[str] = "tokenizers"
    inline_bytes: ClassVar[int] = 2_048

    def __init__(self, path: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, special: bool) -> bytes:
        """See Encoder."""
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)[0]
        return array("I", encoding.ids).tobytes()

    def added_tokens(self) -> list[str]:
        """Return the texts of the added tokens, by id."""
        added = self._tokenizer.get_added_tokens_decoder()
        return [added[token_id].content for token_id in sorted(added)]


@dataclass(slots=True)
class ChatTokenizer:
    """What turns text and chats of one model into token ids, as one kind of engine does.

    `why` is empty with fastokens, and else the reason for the slower one. `chat` renders a conversation,
    `chat_with_tools` one with tools (they are the same unless the model has a template "tool_use").
    """

    encoder: Encoder
    why: str
    chat: Callable[[Chat], str] | None
    chat_with_tools: Callable[[Chat], str] | None

    def render(self, chat: Chat) -> str:
        """Render a chat to text; raise Inexact when there is no template, or it fails."""
        if chat.chat_template is not None:
            raise Inexact("the request brings its own chat template")
        render = self.chat_with_tools if chat.tools else self.chat
        if render is None:
            raise Inexact("the tokenizer has no chat template")
        return render(chat)


def load_tokenizer(path: str, *, engine: str = "vllm") -> ChatTokenizer:
    """Load `path`, a tokenizer.json or a model's directory, for workers of `engine`, "vllm" or "sglang".

    Raises ConfigError with one line when a file is missing or wrong.
    """
    files = read_model_files(path)
    encoder, why = _encoder(files.tokenizer)
    chat = _renderer(files, "default", engine)
    return ChatTokenizer(encoder, why, chat, _renderer(files, "tool_use", engine) or chat)


def _renderer(files: ModelFiles, name: str, engine: str) -> Callable[[Chat], str] | None:
    source = files.templates.get(name)
    if source is None:
        return None
    return RENDERERS[engine](ChatTemplate(source, files.special_tokens))


def _encoder(path: Path) -> tuple[Encoder, str]:
    """Return the encoder to use, and why it is not fastokens."""
    try:
        reference = TokenizersEncoder(path)
    except Exception as error:  # noqa: BLE001 (tokenizers raises bare Exception)
        raise ConfigError(f"tokenizer: {path} cannot be loaded: {error}") from None
    try:
        fast = FastokensEncoder(path)
    except (ValueError, RuntimeError) as error:
        return reference, f"fastokens cannot load it: {error}"
    difference = _difference(fast, reference)
    return (reference, difference) if difference else (fast, "")


def _difference(fast: Encoder, reference: TokenizersEncoder) -> str:
    """Return how the two differ on the samples, or an empty string."""
    for text in (*samples.TEXTS, *samples.with_added_tokens(reference.added_tokens())):
        for special in (False, True):
            if fast.encode(text, special=special) != reference.encode(text, special=special):
                return f"fastokens gives other ids for {text[:40]!a}"
    return ""
