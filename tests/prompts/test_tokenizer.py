from __future__ import annotations

import json
from array import array
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer

from router.errors import ConfigError
from router.prompts import encoders, samples
from router.prompts.encoders import FastokensEncoder, TokenizersEncoder
from router.prompts.fields import Chat
from router.prompts.inexact import Inexact
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer
from tests.prompts import models

if TYPE_CHECKING:
    from pathlib import Path

ANY_TEMPLATE = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"


def ids(data: bytes) -> list[int]:
    return array("I", data).tolist()


def chat(*contents: str, tools: bool = False) -> Chat:
    tool = {"type": "function", "function": {"name": "f"}}
    return Chat(
        messages=[{"role": "user", "content": text} for text in contents], tools=[tool] if tools else None
    )


def test_a_real_model_runs_on_fastokens_with_the_ids_of_tokenizers(deepseek: ChatTokenizer) -> None:
    reference = Tokenizer.from_file(str(models.DEEPSEEK / "tokenizer.json"))
    assert (deepseek.encoder.name, deepseek.why) == ("fastokens", "")
    for text in samples.TEXTS:
        expected = reference.encode(text, add_special_tokens=True).ids
        assert ids(deepseek.encoder.encode(text, special=True)) == expected


def test_special_tokens_are_added_as_the_post_processor_says(tmp_path: Path) -> None:
    loaded = load_tokenizer(models.byte_level(tmp_path))
    assert loaded.encoder.name == "fastokens"
    assert len(ids(loaded.encoder.encode("hey", special=False))) == 3
    assert ids(loaded.encoder.encode("hey", special=True))[0] == 256


def test_a_truncation_kept_in_the_file_is_not_applied(tmp_path: Path) -> None:
    loaded = load_tokenizer(models.byte_level(tmp_path))
    assert len(ids(loaded.encoder.encode("x" * 100, special=False))) == 100


def test_chats_of_gpt_oss_are_vllms_to_render_and_sglang_uses_the_template(tmp_path: Path) -> None:
    path = models.byte_level(tmp_path, chat_template=ANY_TEMPLATE)
    (tmp_path / "config.json").write_text('{"model_type": "gpt_oss"}', encoding="utf-8")
    assert load_tokenizer(path, engine="sglang").render(chat("abc")) == "abc"
    with pytest.raises(Inexact, match="harmony"):
        load_tokenizer(path, engine="vllm").render(chat("abc"))


def test_a_model_that_fastokens_cannot_load_runs_on_tokenizers(tmp_path: Path) -> None:
    loaded = load_tokenizer(models.word_level(tmp_path))
    assert (loaded.encoder.name, ids(loaded.encoder.encode("a b", special=True))) == ("tokenizers", [0, 1])
    assert "fastokens cannot load it" in loaded.why


def test_two_tokenizers_with_other_ids_are_told_apart(tmp_path: Path) -> None:
    models.byte_level(tmp_path)
    fast = FastokensEncoder.from_file(models.DEEPSEEK / "tokenizer.json")
    difference = encoders.difference(fast, TokenizersEncoder(tmp_path / "tokenizer.json"))
    assert difference == "fastokens gives other ids for ''"


def test_many_added_tokens_are_sampled_from_both_ends() -> None:
    texts = samples.with_added_tokens([f"<{number}>" for number in range(1000)])
    assert len(texts) == samples.MAX_ADDED_TOKENS
    assert "<0>" in texts[0]
    assert "<999>" in texts[-1]


def test_the_file_alone_finds_what_lies_beside_it(tmp_path: Path) -> None:
    models.byte_level(tmp_path, chat_template=ANY_TEMPLATE, bos_token={"content": "<s>"})
    loaded = load_tokenizer(str(tmp_path / "tokenizer.json"))
    assert loaded.render(chat("a", "b")) == "<s>ab"


def test_special_tokens_come_from_the_map_when_the_config_has_none(tmp_path: Path) -> None:
    models.byte_level(tmp_path, chat_template=ANY_TEMPLATE, bos_token=None)
    (tmp_path / "special_tokens_map.json").write_text(json.dumps({"bos_token": "<s>"}))
    assert load_tokenizer(str(tmp_path)).render(chat("a")) == "<s>a"


def test_a_template_file_stands_before_the_config(tmp_path: Path) -> None:
    models.byte_level(tmp_path, chat_template="from the config")
    (tmp_path / "chat_template.jinja").write_text("from the file")
    assert load_tokenizer(str(tmp_path)).render(chat("a")) == "from the file"


def test_a_model_may_have_a_template_of_its_own_for_tools(tmp_path: Path) -> None:
    named = [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]
    loaded = load_tokenizer(models.byte_level(tmp_path, chat_template=named))
    assert (loaded.render(chat("a")), loaded.render(chat("a", tools=True))) == ("plain", "tools")


def test_each_engine_renders_in_its_own_way(tmp_path: Path) -> None:
    path = models.byte_level(tmp_path, chat_template="{{ messages[0].content }}")
    parts: Chat = Chat(messages=[{"role": "user", "content": ["a", "b"]}])
    assert load_tokenizer(path, engine="vllm").render(parts) == "a\nb"
    assert load_tokenizer(path, engine="sglang").render(parts) == "a b"


def test_a_chat_without_a_template_or_with_its_own_is_a_reason(tmp_path: Path) -> None:
    loaded = load_tokenizer(models.byte_level(tmp_path))
    with pytest.raises(Inexact, match="no chat template"):
        loaded.render(chat("a"))
    with pytest.raises(Inexact, match="its own chat template"):
        loaded.render(Chat(messages=[], chat_template="x"))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "is not a file; expected a tokenizer.json, tekken.json"),
        ({"tokenizer.json": "{"}, "tokenizer.json cannot be loaded: "),
        (
            {"tokenizer.json": "{}", "tokenizer_config.json": "[]"},
            "tokenizer_config.json is not a JSON object",
        ),
        (
            {"tokenizer.json": "{}", "tokenizer_config.json": '{"chat_template": [1]}'},
            "expected a string or a list",
        ),
    ],
)
def test_missing_or_wrong_files_are_one_clear_line(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message) as caught:
        load_tokenizer(str(tmp_path))
    assert "\n" not in caught.value.message


def test_a_wrong_template_is_one_clear_line(tmp_path: Path) -> None:
    models.byte_level(tmp_path, chat_template="{% for %}")
    with pytest.raises(ConfigError, match="the chat template does not compile"):
        load_tokenizer(str(tmp_path))


def test_a_file_that_is_not_text_is_one_clear_line(tmp_path: Path) -> None:
    models.byte_level(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match=r"chat_template.jinja is not UTF-8"):
        load_tokenizer(str(tmp_path))


def test_a_path_that_cannot_even_be_asked_for_is_one_clear_line() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_tokenizer("x" * 5000)
