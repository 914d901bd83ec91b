"""Conversations with images: hashed up to the first of them, whatever the image is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse
from router.prompts.template import ChatTemplate
from router.prompts.tokenizer import RENDERERS, WANTS_PARTS, ChatTokenizer

if TYPE_CHECKING:
    from router.prompts.prompt import Prompt

STRINGS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{{ '\n' }}{% endfor %}"
PARTS = (
    "{% for m in messages %}<{{ m.role }}>{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% else %}<image>{% endif %}"
    "{% endfor %}{% endif %}{{ '\n' }}{% endfor %}"
)
IMAGE = {"type": "image_url", "image_url": {"url": "data:,"}}
TEXT = "What is this, and what does it tell of the world? "


def tokenizer(deepseek: ChatTokenizer, source: str, engine: str) -> ChatTokenizer:
    template = ChatTemplate(source, {})
    render = RENDERERS[engine](template)
    parts = WANTS_PARTS[engine](template)
    return ChatTokenizer(deepseek.encoder, "", render, render, engine, parts=parts)


def read(with_: ChatTokenizer, *contents: Any) -> Prompt:
    messages = [{"role": "user", "content": content} for content in contents]
    return read_prompt(parse(Kind.CHAT, json.dumps({"messages": messages}).encode()), with_, with_.engine)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_comes_before_an_image_is_hashed_and_the_rest_is_not(
    deepseek: ChatTokenizer, engine: str
) -> None:
    model = tokenizer(deepseek, PARTS, engine)
    prompt = read(model, "Hello there. ", [{"type": "text", "text": TEXT}, IMAGE], "more")
    before = f"<user>Hello there. \n<user>{TEXT}"
    whole = model.ids(before + "<image>\n<user>more\n", special=False)
    assert whole.startswith(prompt.tokens)
    assert len(prompt.tokens) >= len(model.ids(before, special=False)) - 8
    assert (prompt.exact, prompt.reusable, prompt.source) == (False, len(prompt.tokens) // 4, "tokens")
    assert prompt.count > prompt.reusable
    assert prompt.why.startswith("hashed up to messages[1], which is not all text")


@pytest.mark.parametrize("image", ["<image>", "s", " ", "\n", "'s", "1", ".", "\n\n", "。", "é"])
def test_no_token_before_an_image_depends_on_what_the_image_becomes(
    deepseek: ChatTokenizer, image: str
) -> None:
    model = tokenizer(deepseek, PARTS, "vllm")
    for text in (TEXT, "it", "12", "  ", "a\n", "naïve"):
        prompt = read(model, [{"type": "text", "text": text}, IMAGE])
        assert model.ids(f"<user>{text}{image}", special=False).startswith(prompt.tokens)


def test_a_template_of_one_text_per_message_is_hashed_up_to_the_message(deepseek: ChatTokenizer) -> None:
    model = tokenizer(deepseek, STRINGS, "vllm")
    prompt = read(model, TEXT, [{"type": "text", "text": TEXT}, IMAGE])
    assert model.ids(f"<user>{TEXT}\n<user>", special=False).startswith(prompt.tokens)
    assert len(prompt.tokens) >= len(model.ids(f"<user>{TEXT}\n", special=False)) - 4


def test_a_template_that_fails_leaves_the_text(deepseek: ChatTokenizer) -> None:
    model = tokenizer(deepseek, "{{ raise_exception('no') }}", "vllm")
    prompt = read(model, [{"type": "text", "text": TEXT}, IMAGE])
    assert (prompt.exact, prompt.source) == (False, "text")
    assert tokenizer(deepseek, "nothing", "vllm").parts is False
    assert read(tokenizer(deepseek, "nothing", "vllm"), [IMAGE]).source == "text"
