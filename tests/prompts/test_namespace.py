"""Equal tokens in another namespace are other blocks: how each engine names one."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from router.core.blocks import Namespace
from router.prompts.namespace import namespace
from router.prompts.request import Kind, parse


def of(engine: str, adapter: str | None = None, **fields: Any) -> Namespace:
    body = msgspec.json.encode({"prompt": "p", **fields})
    return namespace(parse(Kind.COMPLETIONS, body), engine, model="m", adapter=adapter)


def test_vllm_takes_the_adapter_from_the_model_name_and_the_salt_from_the_body() -> None:
    assert of("vllm", model="ad", adapter="ad", cache_salt="s") == Namespace("m", "ad", "s")
    assert of("vllm", model="m", lora_path="x", extra_key="y") == Namespace("m", None, None)


def test_sglang_takes_an_adapter_from_lora_path_or_from_behind_the_model_name() -> None:
    assert of("sglang", model="m", lora_path="ad") == Namespace("m", "ad", None)
    assert of("sglang", model="m:ad", lora_path="other") == Namespace("m", "ad", None)
    assert of("sglang", lora_path=["ad", None], prompt=["a", "b"]) == Namespace("m", "ad", None)


def test_an_extra_key_parts_content_as_a_salt_does() -> None:
    assert of("sglang", cache_salt="a", extra_key="b") != of("sglang", cache_salt="a")


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_an_empty_salt_is_none(engine: str) -> None:
    assert of(engine).cache_salt is None
