"""A request's body, decoded once, as far as routing needs it.

A body is refused (`BadRequest`, with the field) only when routing cannot read a field it needs; whether the
request makes sense otherwise is the engine's business. When one body holds several prompts, the LONGEST one
decides where they go: what all have in common is a prefix of it too. Salt and adapter are those of that one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from router.errors import BadRequest
from router.prompts.decoding import MAX_PROMPTS, decode, pack, too_many
from router.prompts.fields import Chat, Completions, Fields, Generate, Messages, Other, Responses, Shape
from router.prompts.form import is_form, model_of

if TYPE_CHECKING:
    from collections.abc import Sequence


class Kind(enum.Enum):
    """The kinds of body that are routed; the value is the path it is posted to.

    `OTHER` is any other route of an engine: embeddings, rerank, score, and what is not known here. It is
    routed by load only.
    """

    COMPLETIONS = "/v1/completions"
    CHAT = "/v1/chat/completions"
    GENERATE = "/generate"
    RESPONSES = "/v1/responses"
    MESSAGES = "/v1/messages"
    OTHER = "other"


@dataclass(slots=True)
class Request:
    """One parsed body.

    `prompt` is text, or token ids as u32 little-endian bytes, or None for a conversation, for embeddings (see
    `embedded`) and for `OTHER`;
    `rest` are the further prompts of the same body, `index` is the place of `prompt` among them all, and
    `size` the body's bytes. `unread`: why the prompt is not here though the body has one, or "".
    """

    kind: Kind
    fields: Fields
    prompt: str | bytes | None
    rest: Sequence[str | bytes]
    index: int
    size: int
    unread: str = ""

    @property
    def prompts(self) -> int:
        """How many prompts the body holds."""
        return 1 + len(self.rest)

    @property
    def embedded(self) -> bool:
        """Whether the prompt, or one of them, is given as embeddings: no token of it can be known."""
        return self.prompt is None and isinstance(self.fields, Completions | Generate) and not self.unread

    @property
    def model(self) -> str | None:
        """The model name as the client wrote it."""
        return self.fields.model

    @property
    def stream(self) -> bool:
        """Whether the client asked for a stream of events."""
        return bool(self.fields.stream)

    @property
    def lora(self) -> str | None:
        """The adapter named by SGLang's `lora_path`; vLLM names adapters in `model` instead."""
        return self._of_prompt(self.fields.lora_path)

    @property
    def cache_salt(self) -> str | None:
        """The salt that keeps this request's cache content apart (both engines take it from the body)."""
        return self._of_prompt(self.fields.cache_salt)

    @property
    def extra_key(self) -> str | None:
        """SGLang's caller-defined key; it parts cache content as a salt does."""
        return self._of_prompt(self.fields.extra_key)

    def reads_cache(self, engine: str) -> bool:
        """Whether the engine uses cached blocks for it: vLLM 0.32 computes a prompt anew for its logprobs."""
        fields = self.fields
        if engine != "vllm" or not isinstance(fields, Completions | Chat):
            return True
        if fields.prompt_logprobs is not None:
            return False
        return not (isinstance(fields, Completions) and fields.echo and fields.logprobs is not None)

    @property
    def routed_dp_rank(self) -> int | None:
        """The DP rank that the client pinned in the body (SGLang)."""
        return self.fields.routed_dp_rank

    def _of_prompt(self, value: str | Sequence[str | None] | None) -> str | None:
        """Return the value that goes with the prompt; lists of values go with lists of prompts."""
        if value is None or isinstance(value, str):
            return value
        return value[self.index] if self.index < len(value) else None


# On the hot path by these names: to look one up on the class costs 0.15 us (Python 3.11).
CHAT, COMPLETIONS, GENERATE = Kind.CHAT, Kind.COMPLETIONS, Kind.GENERATE
RESPONSES, OTHER = Kind.RESPONSES, Kind.OTHER


def parse(kind: Kind, body: bytes) -> Request:
    """Decode `body`; raise BadRequest naming the field and what was expected.

    On the hot path: 2 us for a 200-token chat, 1 to 2 ms for 1 MiB of text, 60 ns per token id (for many of
    them see `decoding.parse_ids`).
    """
    if kind is CHAT:
        return whole(kind, decode(_CHAT, body), len(body))
    if kind is COMPLETIONS:
        completions = decode(_COMPLETIONS, body)
        return with_prompts(kind, completions, completions.prompt, "prompt", len(body))
    if kind is GENERATE:
        generate = decode(_GENERATE, body)
        value, param = _native(generate)
        return with_prompts(kind, generate, value, param, len(body))
    if kind is OTHER:
        return Request(kind, _other(body), None, (), 0, len(body))
    if kind is RESPONSES:
        return whole(kind, decode(_RESPONSES, body), len(body))
    return whole(kind, decode(_MESSAGES, body), len(body))


def with_prompts(kind: Kind, fields: Fields, value: Any, param: str, size: int) -> Request:
    """Return the request of a body whose prompt field holds `value`: one prompt or a list of prompts."""
    if _has_embeddings(fields):
        return Request(kind, fields, None, (), 0, size)
    prompts = _prompts(value, param)
    if len(prompts) == 1:
        return Request(kind, fields, prompts[0], (), 0, size)
    index = max(range(len(prompts)), key=lambda at: len(prompts[at]))
    return Request(kind, fields, prompts[index], (*prompts[:index], *prompts[index + 1 :]), index, size)


def kind_of(body: bytes) -> Kind:
    """Tell what kind of body this is by its fields: messages, prompt, or SGLang's input_ids and text."""
    shape = decode(_SHAPE, body)
    if shape.messages is not msgspec.UNSET:
        return Kind.CHAT
    if shape.prompt is not msgspec.UNSET or shape.prompt_embeds is not msgspec.UNSET:
        return Kind.COMPLETIONS
    if any(each is not msgspec.UNSET for each in (shape.input_ids, shape.text, shape.input_embeds)):
        return Kind.GENERATE
    if shape.input is not msgspec.UNSET:
        return Kind.RESPONSES
    raise BadRequest("expected one of prompt, messages, input_ids, text or input", param="prompt")


_COMPLETIONS = msgspec.json.Decoder(Completions)
_CHAT = msgspec.json.Decoder(Chat)
_GENERATE = msgspec.json.Decoder(Generate)
_RESPONSES = msgspec.json.Decoder(Responses)
_MESSAGES = msgspec.json.Decoder(Messages)
_OTHER = msgspec.json.Decoder(Other)
_SHAPE = msgspec.json.Decoder(Shape)


def whole(kind: Kind, fields: Chat | Messages | Responses, size: int) -> Request:
    """Return the request of a conversation; raise BadRequest when there is none."""
    if isinstance(fields, Responses):
        if fields.input is None:
            raise BadRequest("input: expected a string or a list of items", param="input")
    elif not fields.messages:
        raise BadRequest("messages: expected a list with at least one message", param="messages")
    return Request(kind, fields, None, (), 0, size)


def _other(body: bytes) -> Other:
    """Read the model's name where there is one; what is neither JSON nor a form has none."""
    if is_form(body):
        return Other(model=model_of(body))
    try:
        return _OTHER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Other()


def _native(fields: Generate) -> tuple[Any, str]:
    if fields.input_ids is not None:
        return fields.input_ids, "input_ids"
    if fields.text is None and not _has_embeddings(fields):
        raise BadRequest("expected text (a string) or input_ids (token ids)", param="text")
    return fields.text, "text"


def _has_embeddings(fields: Fields) -> bool:
    """Whether a body has prompts as embeddings: beside others or alone."""
    if isinstance(fields, Completions):
        return bytes(fields.prompt_embeds) != b"null"
    return isinstance(fields, Generate) and bytes(fields.input_embeds) != b"null"


def _prompts(value: Any, param: str) -> list[str | bytes]:
    if isinstance(value, str | bytes):
        return [value]
    if not value:
        raise no_prompt(param)
    first = value[0]
    if isinstance(first, int):
        return [pack(value, param)]
    if len(value) > MAX_PROMPTS:
        raise too_many(param)
    if any(type(each) is not type(first) for each in value):
        raise BadRequest(f"{param}: expected strings only, or lists of token ids only", param=param)
    if isinstance(first, str):
        return list(value)
    if not all(value):
        raise no_prompt(param)
    if isinstance(first, bytes):
        return list(value)
    return [pack(each, param) for each in value]


def no_prompt(param: str) -> BadRequest:
    """Return what is raised when a body has no prompt."""
    return BadRequest(f"{param}: expected a string, token ids, or a list of either, not empty", param=param)
