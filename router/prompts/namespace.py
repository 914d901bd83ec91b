"""Whose cache content a request can share: equal tokens in another namespace are other blocks.

Both engines take `cache_salt` from the body. They differ in how an adapter is named: vLLM serves it under a
model name of its own (a worker's description knows its base model), SGLang takes `lora_path`, or
"base:adapter" as the model name, which wins over `lora_path`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from router.core.blocks import Namespace

if TYPE_CHECKING:
    from router.prompts.request import Request


def namespace(
    request: Request, engine: str, *, model: str, adapter: str | None, text: bool = False
) -> Namespace:
    """Return the request's namespace as `engine` ("vllm" or "sglang") sees it.

    `model` is the base model that the request goes to, `adapter` the one its model name stands for, if any;
    `text` sets what is made of text apart from what is made of token ids. One lookup for most requests.
    """
    fields = request.fields
    if fields.cache_salt is None and fields.extra_key is None and fields.lora_path is None:
        named = fields.model
        if named == model or engine != "sglang" or named is None:
            return _plain(model, adapter, text)
    return _special(request, engine, model, adapter, text)


@lru_cache(maxsize=1024)
def _plain(model: str, adapter: str | None, text: bool) -> Namespace:
    return Namespace(model, adapter, None, text)


def _special(
    request: Request,
    engine: str,
    model: str,
    adapter: str | None,
    text: bool,
) -> Namespace:
    if engine != "sglang":
        return Namespace(model, adapter, request.cache_salt, text)
    named = (request.model or "").partition(":")[2]
    salt = (request.cache_salt or "") + (request.extra_key or "")
    return Namespace(model, adapter or named or request.lora, salt or None, text)
