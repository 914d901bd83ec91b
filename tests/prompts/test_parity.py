"""Our ids beside those of transformers' `apply_chat_template`, model by model, chat by chat."""

from __future__ import annotations

import json
from array import array
from typing import Any

import pytest
from jinja2 import TemplateError
from mistral_common.exceptions import MistralCommonException
from transformers import AutoTokenizer, MistralCommonBackend

from router.prompts.files import read_model_files
from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse
from router.prompts.template import ChatTemplate
from router.prompts.tokenizer import RENDERERS, ChatTokenizer, load_tokenizer
from tests.prompts import corpus, real


class Pair:
    """One model, loaded by the router (as vLLM would use it) and by transformers."""

    def __init__(self, model: real.Model) -> None:
        self.ours: ChatTokenizer = load_tokenizer(str(model.ours))
        self.sglang = _on_sglang(self.ours, model)
        if model.library == "mistral-common":
            self.theirs: Any = MistralCommonBackend.from_pretrained(str(model.theirs))
        else:
            self.theirs = AutoTokenizer.from_pretrained(str(model.theirs))

    def expected(self, body: dict[str, Any]) -> list[int] | None:
        """Return transformers' ids, or None when the template or the tokenizer refuses the conversation."""
        messages = [_as_engines_show_it(message, self.theirs) for message in body["messages"]]
        options = {} if isinstance(self.theirs, MistralCommonBackend) else {"add_generation_prompt": True}
        try:
            ids: list[int] = self.theirs.apply_chat_template(
                messages, tools=body.get("tools"), tokenize=True, return_dict=False, **options
            )
        except (TemplateError, MistralCommonException, TypeError, ValueError):
            return None
        return ids


def _on_sglang(ours: ChatTokenizer, model: real.Model) -> ChatTokenizer:
    """Return the same vocabulary with the other engine's rendering, without loading it again."""
    files = read_model_files(str(model.ours))
    source = files.templates.get("default")
    render = RENDERERS["sglang"](ChatTemplate(source, files.special_tokens)) if source else None
    return ChatTokenizer(ours.encoder, ours.why, render, render, "sglang")


def _as_engines_show_it(message: dict[str, Any], tokenizer: Any) -> dict[str, Any]:
    """Templates get the arguments of tool calls as objects; mistral-common takes their JSON."""
    if "tool_calls" not in message or isinstance(tokenizer, MistralCommonBackend):
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.loads(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


@pytest.fixture(scope="module", params=sorted(real.MODELS))
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    model = real.MODELS[request.param](tmp_path_factory.mktemp(request.param))
    loaded = Pair(model)
    assert loaded.ours.encoder.name == model.library
    return loaded


def _ours(tokenizer: ChatTokenizer, body: dict[str, Any]) -> list[int] | None:
    prompt = read_prompt(parse(Kind.CHAT, json.dumps(body).encode()), tokenizer, tokenizer.engine)
    return array("I", prompt.tokens).tolist() if prompt.exact else None


@pytest.mark.parametrize("kind", corpus.KINDS)
def test_a_chat_has_the_ids_that_transformers_gives_it(pair: Pair, kind: str) -> None:
    for body in corpus.conversations(kind):
        assert _ours(pair.ours, body) == pair.expected(body), body


def test_most_conversations_are_taken_by_every_model(pair: Pair) -> None:
    bodies = [body for kind in corpus.KINDS for body in corpus.conversations(kind)]
    taken = sum(_ours(pair.ours, body) is not None for body in bodies)
    assert len(bodies) > 300
    assert taken > 0.8 * len(bodies)


@pytest.mark.parametrize("kind", [kind for kind in corpus.KINDS if kind != "tools"])
def test_sglang_gives_a_chat_without_tools_the_same_ids(pair: Pair, kind: str) -> None:
    for body in corpus.conversations(kind)[:12]:
        assert _ours(pair.sglang, body) == _ours(pair.ours, body)


@pytest.mark.parametrize("kind", corpus.KINDS)
def test_a_completion_has_the_ids_that_transformers_gives_it(pair: Pair, kind: str) -> None:
    for body in corpus.conversations(kind)[:12]:
        text = body["messages"][-1]["content"]
        prompt = read_prompt(parse(Kind.COMPLETIONS, json.dumps({"prompt": text}).encode()), pair.ours)
        assert array("I", prompt.tokens).tolist() == pair.theirs.encode(text, add_special_tokens=True), text
