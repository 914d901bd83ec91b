"""From a request body to what the engine is asked: prompts as token ids, a length, a namespace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from workers.engine.namespace import Namespace
from workers.http.body import boolean, integer, mapping, string
from workers.http.errors import BadRequest, NotFound
from workers.http.pair import Pair, pairs_of
from workers.http.prompts import chat_tokens, prompts_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers.driver import Driver
    from workers.http.edge import Edge
    from workers.http.prompts import Tokens

COMPLETION_TOKENS, NATIVE_TOKENS = 16, 128  # the engines' defaults; a chat without a limit ends by itself
CHAT_TOKENS = 48
MOST_COPIES = 16_384  # vLLM's VLLM_MAX_N_SEQUENCES
MOST_REQUESTS, MOST_TOKENS = 65_536, 2**26  # of all copies of all prompts: what a process has memory for


@dataclass(slots=True)
class Ask:
    """One client request: one engine request per prompt, all on one rank.

    `batch`: the native route was given a list, so a list is the answer. `copies`: how often each prompt is
    there, one after another, for as many answers. `pairs`: of every prompt.
    `ignores_cache`, `reports_hits`, `session_id`: see the engine's Request. `wants_ids`: the answer
    is to hold token ids, the prompt's too (vLLM).
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
    copies: int = 1
    pairs: list[Pair] = field(default_factory=list)
    ignores_cache: bool = False
    reports_hits: bool = False
    session_id: str | None = None
    wants_ids: bool = False


def completion(edge: Edge, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
    """Read the body of /v1/completions."""
    if edge.spec.engine == "vllm":
        _vllm_prompt(body.get("prompt"))
    elif "prompt" not in body:
        raise BadRequest("prompt is required", param="prompt")
    prompts = prompts_of(body["prompt"], edge.tokenizer, "prompt")
    return _openai(edge, headers, body, prompts, integer(body, "max_tokens", COMPLETION_TOKENS, least=1))


def chat(edge: Edge, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
    """Read the body of /v1/chat/completions."""
    prompts = [chat_tokens(edge, body)]
    limit = integer(body, "max_tokens", None, least=1)
    limit = integer(body, "max_completion_tokens", limit, least=1)
    return _openai(edge, headers, body, prompts, limit)


def native(edge: Edge, headers: Mapping[str, str], body: dict[str, Any]) -> Ask:
    """Read the body of SGLang's /generate."""
    names = [name for name in ("text", "input_ids") if body.get(name) is not None]
    if len(names) != 1:
        raise BadRequest("Either text or input_ids should be provided, one of them.", param="text")
    name, given = names[0], body[names[0]]
    sampling = mapping(body, "sampling_params")
    ask = _ask(edge, headers, body, prompts_of(given, edge.tokenizer, name))
    ask.batch = isinstance(given, list) and bool(given) and not isinstance(given[0], int)
    _limit(edge, ask, integer(sampling, "max_new_tokens", None, least=1) or NATIVE_TOKENS)
    return ask


def _openai(
    edge: Edge, headers: Mapping[str, str], body: dict[str, Any], prompts: list[Tokens], limit: int | None
) -> Ask:
    copies = _copies(body, prompts)
    ask = _ask(edge, headers, body, [prompt for prompt in prompts for _ in range(copies)])
    ask.copies = copies
    options = mapping(body, "stream_options")
    if edge.spec.engine == "vllm" and body.get("stream_options") is not None and not ask.stream:
        message = "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
        raise BadRequest(message, param="stream_options")
    ask.include_usage = boolean(options, "include_usage", default=False)
    if limit is None:
        ask.ends_with, limit = "stop", CHAT_TOKENS
    _limit(edge, ask, limit)
    return ask


def _ask(edge: Edge, headers: Mapping[str, str], body: dict[str, Any], prompts: list[Tokens]) -> Ask:
    ignores, reports = _vllm_extras(body) if edge.spec.engine == "vllm" else (False, False)
    return Ask(
        prompts=prompts,
        max_new=0,
        driver=edge.driver_for(headers, body),
        namespace=_namespace(edge, body),
        model=string(body, "model") or edge.spec.model,
        stream=boolean(body, "stream", default=False),
        rid=string(body, "rid"),
        pairs=pairs_of(edge, body, len(prompts)),
        session_id=string(body, "session_id"),
        ignores_cache=ignores,
        reports_hits=reports,
        wants_ids=edge.spec.engine == "vllm" and boolean(body, "return_token_ids", default=False),
    )


def _vllm_extras(body: dict[str, Any]) -> tuple[bool, bool]:
    """Return whether vLLM has to compute every prompt token, and whether it announces what the prompt hits.

    It computes all for prompt_logprobs, and for echo with logprobs.
    """
    wanted = integer(body, "prompt_logprobs", None) is not None
    logprobs = body.get("logprobs")
    if not (logprobs is None or isinstance(logprobs, int)):
        raise BadRequest("logprobs must be an integer or a boolean", param="logprobs")
    echoed = boolean(body, "echo", default=False) and logprobs is not None
    full = mapping(body, "vllm_xargs").get("kv_cache_report_mode") == "full"
    return wanted or echoed, full


def _namespace(edge: Edge, body: dict[str, Any]) -> Namespace:
    model = string(body, "model")
    if edge.spec.engine == "vllm":
        name, salt = _vllm_adapter(edge, model), _vllm_salt(body)
    else:  # SGLang does not look at the model's name, except for an adapter after a colon
        name = (model or "").partition(":")[2] or string(body, "lora_path")
        salt = (string(body, "cache_salt") or "") + (string(body, "extra_key") or "") or None
    return Namespace(name, edge.adapter_id(name) if name else None, salt) if name or salt else Namespace()


def _vllm_adapter(edge: Edge, model: str | None) -> str | None:
    if model is None or model == edge.spec.model:
        return None
    if model in edge.spec.adapters:
        return model
    raise not_served(edge, model)


def not_served(edge: Edge, model: str) -> NotFound:
    """Return vLLM's error of a model that it does not serve."""
    return NotFound(f"The model `{model}` does not exist. Valid aliases: {edge.spec.model}.", param="model")


def _vllm_prompt(prompt: object) -> None:
    """Refuse an empty prompt in vLLM's words."""
    if prompt is None or prompt == "":
        message = "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
        raise BadRequest(message, param="prompt")
    if prompt == []:
        raise BadRequest("You must pass at least one prompt")
    if isinstance(prompt, list) and [] in prompt:
        raise BadRequest("The decoder prompt cannot be empty")


def _vllm_salt(body: dict[str, Any]) -> str | None:
    salt = body.get("cache_salt")
    if salt is None or (isinstance(salt, str) and salt):
        return salt
    message = "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)"
    raise BadRequest(message, param="cache_salt")


def _limit(edge: Edge, ask: Ask, max_new: int) -> None:
    """Set how long the answer gets; what is too long for the model or for the cache is refused."""
    most = edge.spec.max_model_len
    if edge.spec.engine == "vllm" and max_new > most:
        message = (
            f"max_tokens={max_new} cannot be greater than max_model_len={most}. "
            f"Please request fewer output tokens. (parameter=max_tokens, value={max_new})"
        )
        raise BadRequest(message, param="max_tokens")
    longest = min(edge.spec.max_model_len, ask.driver.rank.longest)
    prompt = max(len(prompt) for prompt in ask.prompts)
    if prompt >= longest:
        raise BadRequest(_too_long(longest, prompt), param="input_tokens")
    ask.max_new = min(max_new, longest - prompt)


def _too_long(longest: int, prompt: int) -> str:
    return (
        f"This model's maximum context length is {longest} tokens. However, your prompt contains {prompt} "
        "input tokens, which exceeds this limit even without any output tokens. Please reduce the length "
        f"of the input prompt. (parameter=input_tokens, value={prompt})"
    )


def _copies(body: dict[str, Any], prompts: list[Tokens]) -> int:
    """Return how often every prompt is to be answered."""
    copies = integer(body, "n", 1, least=1, most=MOST_COPIES) or 1
    if len(prompts) * copies > MOST_REQUESTS or sum(map(len, prompts)) * copies > MOST_TOKENS:
        raise BadRequest("n is too large for prompts of this number and length", param="n")
    return copies
