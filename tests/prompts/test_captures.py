"""Our ids and counts beside those a real vLLM 0.32 answered, on every captured request that was served."""

from __future__ import annotations

import json
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from router.errors import BadRequest
from router.prompts.reader import read_prompt
from router.prompts.request import kind_of, parse

if TYPE_CHECKING:
    from router.prompts.tokenizer import ChatTokenizer

CAPTURE = Path(__file__).parent.parent / "fixtures" / "captures" / "vllm_0.32.0_http.jsonl"


def _exchanges() -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in CAPTURE.read_text().splitlines()]
    return [line for line in lines if line["status"] == 200 and _has_prompt(line["body"])]


def _has_prompt(body: Any) -> bool:
    try:
        kind_of(json.dumps(body).encode())
    except BadRequest:
        return False
    return True


def _first(response: Any) -> dict[str, Any]:
    first: dict[str, Any] = response[0] if isinstance(response, list) else response
    return first


EXCHANGES = _exchanges()


def test_the_capture_holds_chats_completions_and_answers_with_ids() -> None:
    paths = {exchange["path"] for exchange in EXCHANGES}
    assert {"/v1/chat/completions", "/v1/completions", "/tokenize", "/v1/chat/completions/render"} <= paths


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange["path"])
def test_our_prompt_is_the_one_the_engine_saw(deepseek: ChatTokenizer, exchange: dict[str, Any]) -> None:
    body = json.dumps(exchange["body"]).encode()
    request = parse(kind_of(body), body)
    prompt = read_prompt(request, deepseek)
    answer = _first(exchange["response"])
    ids = answer.get("tokens") or answer.get("token_ids") or answer.get("prompt_token_ids")
    assert prompt.exact
    if ids:
        assert prompt.tokens == array("I", ids).tobytes()
    elif request.prompts == 1:
        assert prompt.count == answer["usage"]["prompt_tokens"]
