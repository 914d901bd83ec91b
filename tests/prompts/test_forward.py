from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING, Any

import pytest

from router.prompts.forward import with_input_ids
from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse

if TYPE_CHECKING:
    from router.prompts.tokenizer import ChatTokenizer


def forwarded(tokenizer: ChatTokenizer | None, kind: Kind, **body: Any) -> Any:
    data = json.dumps(body).encode()
    request = parse(kind, data)
    sent = with_input_ids(request, read_prompt(request, tokenizer, "sglang"), data)
    return None if sent is data else json.loads(sent)


def test_text_goes_out_as_the_ids_that_the_engine_would_make_of_it(deepseek: ChatTokenizer) -> None:
    ids = array("I", deepseek.ids("hello world", special=True)).tolist()
    extra = {"temperature": 0.5, "stop": ["\n"], "n": 10**30}
    assert forwarded(deepseek, Kind.COMPLETIONS, prompt="hello world", **extra) == {"prompt": ids, **extra}
    assert forwarded(deepseek, Kind.GENERATE, text="hello world", rid="r") == {"input_ids": ids, "rid": "r"}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.COMPLETIONS, {"prompt": [1, 2]}),
        (Kind.COMPLETIONS, {"prompt": ["a", "b"]}),
        (Kind.COMPLETIONS, {"prompt": "a", "echo": True}),
        (Kind.COMPLETIONS, {"prompt": "a", "suffix": "b"}),
        (Kind.GENERATE, {"text": "a", "image_data": "data:"}),
        (Kind.GENERATE, {"input_ids": [1]}),
        (Kind.CHAT, {"messages": [{"role": "user", "content": "a"}]}),
        (Kind.OTHER, {"input": "a"}),
    ],
)
def test_whatever_else_goes_out_as_it_came(deepseek: ChatTokenizer, kind: Kind, body: dict[str, Any]) -> None:
    assert forwarded(deepseek, kind, **body) is None


def test_without_exact_ids_the_text_goes_out() -> None:
    assert forwarded(None, Kind.COMPLETIONS, prompt="a") is None
