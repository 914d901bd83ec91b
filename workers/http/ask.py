"""From a request body to what the engine is asked: prompts as token ids, a length, a namespace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import jinja2

from workers.engine.namespace import Namespace
from workers.http.body import integer, string
from workers.http.errors import BadRequest, NotFound
from workers.http.pair import Pair, pairs_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.driver import Driver
    from workers.http.edge import Edge
    from workers.tokenizer import Tokenizer

Tokens: TypeAlias = list[int]
COMPLETION_TOKENS, NATIVE_TOKENS = 16, 128  # the engines' defaults; a chat without a limit ends by itself
CHAT_TOKENS = 48
_MOST_U32 = 2**32 - 1


@dataclass(slots=True)
class Ask:
    """One client request: one engine request per prompt, all on one rank.

    `batch`: the native route was given a list, so a list is the answer. `pairs`: of every prompt.
    `ignores_cache`, `reports_hits`, `session_id`: see the engine's Request.
    """

    prompts: list[Tokens]
    max_new: int
    driver: Driver
    namespace: Namespace
    model: str
    ends_with: str = "length"
    stream: bool = False
    include_usage: bool = False
    rid: str | None = None
    batch: bool = False
    pairs: list[Pair] = field(default_factory=list)
    ignores_cache: bool = False
    reports_hits: bool = False
    session_id: str | None = None


def completion(edge: Edge, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
    """Read the body of /v1/completions."""
    if "prompt" not in body:
        raise BadRequest("prompt is required", param="prompt")
    prompts = _prompts(body["prompt"], edge.tokenizer, "prompt") * _copies(body)
    return _openai(edge, headers, body, prompts, integer(body, "max_tokens", COMPLETION_TOKENS))


def chat(edge: Edge, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
    """Read the body of /v1/chat/completions."""
    prompts = [chat_tokens(edge, body)] * _copies(body)
    limit = integer(body, "max_completion_tokens", integer(body, "max_tokens", None))
    return _openai(edge, headers, body, prompts, limit)


def native(edge: Edge, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
    """Read the body of SGLang's /generate."""
    name = "input_ids" if body.get("input_ids") is not None else "text"
    given = body.get(name)
    if given is None:
        raise BadRequest("Either text, input_ids or input_embeds should be provided.")
    sampling = body.get("sampling_params") or {}
    if not isinstance(sampling, dict):
        raise BadRequest("sampling_params must be an object", param="sampling_params")
    ask = _ask(edge, headers, body, _prompts(given, edge.tokenizer, name))
    ask.batch = isinstance(given, list) and bool(given) and not isinstance(given[0], int)
    _limit(edge, ask, integer(sampling, "max_new_tokens", NATIVE_TOKENS))
    return ask


def chat_tokens(edge: Edge, body: dict[str, Any]) -> Tokens:
    """Return the ids of a chat body's rendered messages; raises BadRequest when they cannot be rendered."""
    messages = body.get("messages")
    if not (isinstance(messages, list) and messages and all(isinstance(entry, dict) for entry in messages)):
        raise BadRequest("messages must be a list of at least one message", param="messages")
    joint = "\n" if edge.spec.engine == "vllm" else " "
    settings = {"add_generation_prompt": True, "tools": body.get("tools")}
    settings |= body.get("chat_template_kwargs") or {}
    try:
        return edge.tokenizer.encode_chat([_message(entry, joint) for entry in messages], **settings)
    except (jinja2.TemplateError, TypeError, ValueError) as error:
        raise BadRequest(f"cannot render the messages: {error}", param="messages") from error


def _message(message: dict[str, Any], joint: str) -> dict[str, Any]:
    content = message.get("content")
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = joint.join(text for text in texts if isinstance(text, str))
    return {**message, "content": content or ""}


def _openai(
    edge: Edge, headers: Mapping[str, str], body: dict[str, Any], prompts: list[Tokens], limit: int | None
) -> Ask:
    ask = _ask(edge, headers, body, prompts)
    options = body.get("stream_options") or {}
    ask.include_usage = isinstance(options, dict) and bool(options.get("include_usage"))
    if limit is None:
        ask.ends_with, limit = "stop", CHAT_TOKENS
    _limit(edge, ask, limit)
    return ask


def _ask(edge: Edge, headers: Mapping[str, str], body: dict[str, Any], prompts: list[Tokens]) -> Ask:
    return Ask(
        prompts=prompts,
        max_new=0,
        driver=edge.driver_for(headers, body),
        namespace=_namespace(edge, body),
        model=string(body, "model") or edge.spec.model,
        stream=bool(body.get("stream")),
        rid=string(body, "rid"),
        pairs=pairs_of(edge, body, len(prompts)),
        session_id=string(body, "session_id"),
        ignores_cache=edge.spec.engine == "vllm" and _wants_prompt_logprobs(body),
        reports_hits=(body.get("vllm_xargs") or {}).get("kv_cache_report_mode") == "full",
    )


def _wants_prompt_logprobs(body: dict[str, Any]) -> bool:
    """Whether vLLM has to compute every prompt token: prompt_logprobs, or echo with logprobs."""
    echoed = bool(body.get("echo")) and body.get("logprobs") is not None
    return body.get("prompt_logprobs") is not None or echoed


def _namespace(edge: Edge, body: dict[str, Any]) -> Namespace:
    model, salt = string(body, "model"), string(body, "cache_salt") or None
    if edge.spec.engine == "vllm":
        name = _vllm_adapter(edge, model)
    else:  # SGLang does not look at the model's name, except for an adapter after a colon
        name = (model or "").partition(":")[2] or string(body, "lora_path")
        salt = (salt or "") + (string(body, "extra_key") or "") or None
    return Namespace(name, edge.adapter_id(name) if name else None, salt) if name or salt else Namespace()


def _vllm_adapter(edge: Edge, model: str | None) -> str | None:
    if model is None or model == edge.spec.model:
        return None
    if model in edge.spec.adapters:
        return model
    names = ", ".join((edge.spec.model, *edge.spec.adapters))
    raise NotFound(f"The model `{model}` does not exist. Valid aliases: {names}.", param="model")


def _limit(edge: Edge, ask: Ask, max_new: int | None) -> None:
    """Set how long the answer gets; a prompt too long for the model or for the cache is refused."""
    longest = min(edge.spec.max_model_len, ask.driver.rank.longest)
    prompt = max(len(prompt) for prompt in ask.prompts)
    if max_new is None or max_new < 1:
        raise BadRequest("max_tokens must be at least 1", param="max_tokens")
    if prompt >= longest:
        raise BadRequest(_too_long(longest, prompt), param="input_tokens")
    ask.max_new = min(max_new, longest - prompt)


def _too_long(longest: int, prompt: int) -> str:
    return (
        f"This model's maximum context length is {longest} tokens. However, your prompt contains {prompt} "
        "input tokens, which exceeds this limit even without any output tokens. Please reduce the length "
        f"of the input prompt. (parameter=input_tokens, value={prompt})"
    )


def _copies(body: dict[str, Any]) -> int:
    copies = integer(body, "n", 1)
    if copies is None or copies < 1:
        raise BadRequest("n must be at least 1", param="n")
    return copies


def _prompts(value: object, tokenizer: Tokenizer, name: str) -> list[Tokens]:
    """Return the token ids of a text, a list of ids, or a list of either."""
    several = isinstance(value, list) and bool(value) and not isinstance(value[0], int)
    prompts = [_one(entry, tokenizer, name) for entry in value] if several else [_one(value, tokenizer, name)]  # type: ignore[attr-defined] # `several` says that it is a list
    if not all(prompts):
        raise BadRequest(f"{name} must not be empty", param=name)
    return prompts


def _one(value: object, tokenizer: Tokenizer, name: str) -> Tokens:
    if isinstance(value, str):
        return tokenizer.encode(value)
    if isinstance(value, list) and all(type(token) is int and 0 <= token <= _MOST_U32 for token in value):
        return value
    raise BadRequest(f"{name} must be a text or a list of token ids", param=name)
