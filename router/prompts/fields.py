"""The fields of a body that routing needs, one Struct per kind of body; every other field is skipped unread.

Field names and types follow vLLM 0.32 and SGLang 0.5.23, which share the OpenAI names. A field that one of
the engines does not know is simply absent there.
"""

from __future__ import annotations

from typing import Annotated, Any, Required, TypedDict

import msgspec

TokenId = Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)]
"""A token id; it must fit the u32 in which ids are hashed."""


NOTHING = msgspec.Raw(b"null")
"""What a field that is not looked into holds when it is not there."""


class Message(TypedDict, total=False):
    """One chat message, reduced to what either engine hands to a chat template."""

    role: Required[str]
    content: str | list[str | dict[str, Any]] | None
    name: str | None
    tool_calls: list[dict[str, Any]] | None
    tool_call_id: str | None
    reasoning: str | None
    reasoning_content: str | None
    tools: list[dict[str, Any]] | None


class Shared(msgspec.Struct, kw_only=True, gc=False):
    """The fields of every kind of body. Lists of salts and adapters (SGLang) go with lists of prompts."""

    model: str | None = None
    stream: bool | None = None
    cache_salt: str | list[str] | None = None
    extra_key: str | list[str] | None = None
    lora_path: str | list[str | None] | None = None
    routed_dp_rank: int | None = None


class Completions(Shared, kw_only=True, gc=False):
    """A /v1/completions body."""

    prompt: str | list[TokenId | str | list[TokenId]] | None = None
    prompt_embeds: msgspec.Raw = NOTHING
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: str | None = None
    prompt_logprobs: int | None = None
    suffix: str | None = None
    echo: bool | None = None
    logprobs: int | None = None


class Chat(Shared, kw_only=True, gc=False):
    """A /v1/chat/completions body."""

    messages: list[Message] | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    truncation_side: str | None = None
    prompt_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    reasoning_effort: str | float | None = None
    reasoning: Any = None


class Generate(Shared, kw_only=True, gc=False):
    """A body of SGLang's native /generate."""

    text: str | list[str] | None = None
    input_ids: list[TokenId | list[TokenId]] | None = None
    input_embeds: msgspec.Raw = NOTHING
    image_data: msgspec.Raw = NOTHING
    video_data: msgspec.Raw = NOTHING
    audio_data: msgspec.Raw = NOTHING


class Responses(Shared, kw_only=True, gc=False):
    """A /v1/responses body."""

    input: str | list[dict[str, Any]] | None = None
    instructions: str | None = None
    previous_response_id: str | None = None
    prompt: msgspec.Raw = NOTHING
    tools: list[dict[str, Any]] | None = None
    reasoning: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Turn(TypedDict, total=False):
    """One message of an Anthropic body."""

    role: Required[str]
    content: Required[str | list[dict[str, Any]]]


class Messages(Shared, kw_only=True, gc=False):
    """A /v1/messages body, as Anthropic defines it."""

    messages: list[Turn] | None = None
    system: str | list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class Other(Shared, kw_only=True, gc=False):
    """Any other body, as far as a worker can be chosen by it: embeddings, rerank, score, unknown ones."""


Fields = Completions | Chat | Generate | Responses | Messages | Other
"""The fields of a body, whatever its kind."""


class Shape(msgspec.Struct, gc=False):
    """Which prompt fields a body has, whatever is in them."""

    prompt: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    prompt_embeds: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input_embeds: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input_ids: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    text: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    input: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
