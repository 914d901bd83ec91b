"""The segment cache: what it answers is what whole tokenisation gives, for every template of the corpus."""

from __future__ import annotations

import json
import shutil
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer
from tests.prompts import corpus, models

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPLATES = sorted((Path(__file__).parent.parent / "fixtures" / "templates").glob("*.jinja"))
CAPTURED = "captured"

TEXTS = st.one_of(
    st.text(max_size=20),
    st.sampled_from((*corpus.SPECIAL, *corpus.SPACES, *corpus.EMOJI, *corpus.UNICODE, *corpus.CODE)),
    st.lists(st.sampled_from(("\n", " ", "a", "<|im_end|>", "<\uff5cUser\uff5c>", "s", "'")), max_size=6).map(
        "".join
    ),
)


@pytest.fixture(scope="module", params=[*(path.stem for path in TEMPLATES), CAPTURED])
def tokenizer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    directory = tmp_path_factory.mktemp(request.param)
    path = models.deepseek(directory, models.CAPTURED_TEMPLATE)
    if request.param != CAPTURED:
        source = TEMPLATES[0].with_name(f"{request.param}.jinja")
        shutil.copy(source, directory / "chat_template.jinja")
    return load_tokenizer(path)


@pytest.fixture(scope="module")
def whole() -> Callable[[str], bytes]:
    """Tokenise with a library that has no cache."""
    reference = Tokenizer.from_file(str(models.DEEPSEEK / "tokenizer.json"))
    return lambda text: array("I", reference.encode(text, add_special_tokens=False).ids).tobytes()


def read(tokenizer: ChatTokenizer, messages: list[dict[str, Any]]) -> tuple[bytes, str] | None:
    """Return a chat's ids and its text, or None when the template refuses it."""
    request = parse(Kind.CHAT, json.dumps({"messages": messages}).encode())
    prompt = read_prompt(request, tokenizer)
    return (prompt.tokens, tokenizer.render(request.fields)) if prompt.exact else None  # type: ignore[arg-type] # a chat


@given(turns=st.lists(TEXTS, min_size=1, max_size=7))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_turn_of_a_conversation_is_tokenised_as_a_whole_one(
    tokenizer: ChatTokenizer, whole: Callable[[str], bytes], turns: list[str]
) -> None:
    messages: list[dict[str, Any]] = []
    for number, text in enumerate(turns):
        messages.append({"role": "assistant" if number % 2 else "user", "content": text})
        answered = read(tokenizer, messages)
        if answered is not None:
            tokens, rendered = answered
            assert tokens == whole(rendered)


def test_the_cache_is_bounded_and_answers_most_of_a_conversations_next_turn(tmp_path: Path) -> None:
    shutil.copy(TEMPLATES[0], tmp_path / "template")
    tokenizer = load_tokenizer(models.deepseek(tmp_path, (tmp_path / "template").read_text()))
    native = tokenizer.encoder._tokenizer  # type: ignore[attr-defined] # the cache's own counts
    messages = [{"role": "user", "content": "words " * 2000}]
    assert read(tokenizer, messages) is not None
    before = native.segment_cache_stats()
    messages += [{"role": "assistant", "content": "so"}, {"role": "user", "content": "and?"}]
    assert read(tokenizer, messages) is not None
    after = native.segment_cache_stats()
    assert after["hit_bytes"] - before["hit_bytes"] >= 12_000
    assert after["miss_bytes"] - before["miss_bytes"] < 200
    assert after["max_bytes"] == 64 * 1024 * 1024
