"""A model's tokenizer and chat template, loaded from its files.

`encoders` says which library serves a vocabulary, and why. Loading blocks for one to five seconds: call it
from a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from router.errors import ConfigError
from router.prompts import conversation, sglang_chat, vllm_chat
from router.prompts.encoders import FastokensEncoder, TokenizersEncoder, difference
from router.prompts.files import ModelFiles, read_model_files
from router.prompts.inexact import Inexact
from router.prompts.mistral import MistralEncoder
from router.prompts.prompt import BYTES_PER_ID
from router.prompts.ranks import load_ranks
from router.prompts.template import RENDER_SECONDS, ChatTemplate

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from router.prompts.conversation import Conversation
    from router.prompts.encoders import Encoder
    from router.prompts.fields import Chat

    Render = Callable[[Chat, float], tuple[str, str]]

HARMONY = "gpt_oss"
"""The model_type whose chats vLLM 0.32 renders with openai-harmony; SGLang uses the template."""

RENDERERS: dict[str, Callable[[ChatTemplate], Render]] = {
    "vllm": vllm_chat.renderer,
    "sglang": sglang_chat.renderer,
}
"""How each engine prepares a chat for the template."""

WANTS_PARTS: dict[str, Callable[[ChatTemplate], bool]] = {
    "vllm": vllm_chat.wants_parts,
    "sglang": sglang_chat.wants_parts,
}
"""Whether an engine gives lists of parts to the template, in their order; else it joins texts."""


@dataclass(slots=True)
class ChatTokenizer:
    """What turns text and chats of one model into token ids, as one kind of engine does.

    `why` is empty with fastokens, and else the reason for the slower one. `chat` renders a conversation,
    `chat_with_tools` one with tools (they are the same unless the model has a template "tool_use").
    `parts`: whether the template sees the parts of a message one by one. `bos`: the id of the model's BOS
    token, or no bytes. `timeless`: no template asks for the time, so that a chat always renders the same.
    """

    encoder: Encoder
    why: str
    chat: Render | None
    chat_with_tools: Render | None
    engine: str = "vllm"
    parts: bool = False
    bos: bytes = b""
    timeless: bool = True

    def render(self, chat: Chat, seconds: float = RENDER_SECONDS) -> str:
        """Render a chat to text; raise Inexact when there is no template, or it fails.

        Raises TooSlow, which is Inexact too, after so many `seconds`.
        """
        return "".join(self._rendered(chat, seconds))

    def _rendered(self, chat: Chat, seconds: float) -> tuple[str, str]:
        """Return the text, and what comes after it but is tokenised by itself."""
        if chat.chat_template is not None:
            raise Inexact("the request brings its own chat template")
        render = self.chat_with_tools if chat.tools else self.chat
        if render is None:
            raise Inexact("the tokenizer has no chat template")
        return render(chat, seconds)

    def chat_ids(self, fields: Conversation, seconds: float = RENDER_SECONDS) -> bytes:
        """Return a conversation's token ids as u32 little-endian bytes; raises as `render` does."""
        chat = conversation.chat_of(fields, self.engine)
        if isinstance(self.encoder, MistralEncoder):
            return self.encoder.encode_chat(chat)
        text, prefix = self._rendered(chat, seconds)
        ids = self.ids(text, special=bool(chat.add_special_tokens) and self.engine == "vllm")
        return ids + self.ids(prefix, special=True).removeprefix(self.bos) if prefix else ids

    def ids(self, text: str, *, special: bool) -> bytes:
        """Return a text's token ids as u32 little-endian bytes; raises Inexact."""
        try:
            return self.encoder.encode(text, special=special)
        except Exception as error:  # noqa: BLE001 (whatever a native tokenizer raises, the request can still be routed)
            raise Inexact(f"{self.encoder.name} failed: {error}") from None


def load_tokenizer(path: str, *, engine: str = "vllm") -> ChatTokenizer:
    """Load `path`, a vocabulary or a model's directory, for workers of `engine`, "vllm" or "sglang".

    Raises ConfigError with one line when a file is missing or wrong.
    """
    files = read_model_files(path, mistral_first=engine == "vllm")
    encoder, why = _encoder(files)
    if engine == "vllm" and files.architecture == HARMONY:
        return ChatTokenizer(encoder, why, _by_harmony, _by_harmony, engine)
    default = _template(files, "default")
    with_tools = _template(files, "tool_use") or default
    return ChatTokenizer(
        encoder,
        why,
        RENDERERS[engine](default) if default else None,
        RENDERERS[engine](with_tools) if with_tools else None,
        engine,
        parts=bool(default and WANTS_PARTS[engine](default)),
        bos=_bos(files, encoder),
        timeless=not any(
            template and "strftime_now" in template.source for template in (default, with_tools)
        ),
    )


def _bos(files: ModelFiles, encoder: Encoder) -> bytes:
    """Return the id of the BOS token, if the model has one and it is one token."""
    text = files.special_tokens.get("bos_token")
    ids = encoder.encode(text, special=False) if text else b""
    return ids if len(ids) == BYTES_PER_ID else b""


def _by_harmony(_: Chat, __: float = 0.0) -> tuple[str, str]:
    raise Inexact("vLLM renders the chats of gpt-oss without the template, by rules of its own (harmony)")


def _template(files: ModelFiles, name: str) -> ChatTemplate | None:
    source = files.templates.get(name)
    return None if source is None else ChatTemplate(source, files.special_tokens)


def _encoder(files: ModelFiles) -> tuple[Encoder, str]:
    """Return the encoder of the first vocabulary that can be loaded, and why it is not fastokens."""
    refused = []
    for path in files.vocabularies:
        try:
            encoder, why = _load(path, files)
        except ConfigError as error:
            refused.append(error.message)
        else:
            return encoder, "; ".join(filter(None, (*refused, why)))
    raise ConfigError("; ".join(refused))


def _load(path: Path, files: ModelFiles) -> tuple[Encoder, str]:
    if path.name == "tekken.json":
        return MistralEncoder(path), "mistral-common tokenises models in Mistral's format"
    if path.suffix != ".json":
        return load_ranks(path, files.config)
    reference = TokenizersEncoder(path)
    try:
        fast = FastokensEncoder.from_file(path)
    except (ValueError, RuntimeError) as error:
        return reference, f"fastokens cannot load it: {error}"
    other = difference(fast, reference)
    return (reference, other) if other else (fast, "")
