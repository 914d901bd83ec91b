"""Vocabularies that are no tokenizer.json: tiktoken files and Mistral's tekken."""

from __future__ import annotations

import base64
import json
import sys
from array import array
from typing import TYPE_CHECKING, Any

import pytest
import tiktoken

from router.errors import ConfigError
from router.prompts.fields import Chat
from router.prompts.inexact import Inexact
from router.prompts.reader import read_prompt
from router.prompts.request import Kind, parse
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer
from tests.prompts import models, real

if TYPE_CHECKING:
    from pathlib import Path

PATTERN = r"\s+|\S+"


def bytes_only(directory: Path, **config: Any) -> str:
    """Write a tiktoken file of single bytes, and `config` beside it."""
    lines = [base64.b64encode(bytes([rank])) + b" %d" % rank for rank in range(256)]
    (directory / "tiktoken.model").write_bytes(b"\n".join(lines))
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return str(directory)


@pytest.fixture(scope="module")
def tekken(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return load_tokenizer(str(real.tekken(tmp_path_factory.mktemp("tekken")).ours))


def test_pattern_and_special_tokens_come_from_the_config(tmp_path: Path) -> None:
    added = {"300": {"content": "<|x|>"}}
    loaded = load_tokenizer(bytes_only(tmp_path, pat_str=PATTERN, added_tokens_decoder=added))
    assert (loaded.encoder.name, loaded.why) == ("fastokens", "")
    assert array("I", loaded.ids("a<|x|>b", special=True)).tolist() == [97, 300, 98]


def test_a_known_vocabulary_needs_no_pattern(tmp_path: Path) -> None:
    loaded = load_tokenizer(str(real.qwen3_ranks(tmp_path).ours))
    assert loaded.encoder.name == "fastokens"
    assert loaded.ids("e\u0301", special=False) == loaded.ids("\u00e9", special=False)


@pytest.mark.parametrize(
    ("config", "content", "reason"),
    [
        ({}, None, "expected pat_str in tokenizer_config.json"),
        ({"pat_str": PATTERN}, b"not base64 at all\n", "expected lines of a base64 token and its rank"),
        ({"pat_str": PATTERN, "added_tokens_decoder": {"x": 1}}, None, "expected ids and tokens"),
    ],
)
def test_what_is_wrong_with_a_tiktoken_file_is_one_line(
    tmp_path: Path, config: dict[str, Any], content: bytes | None, reason: str
) -> None:
    path = bytes_only(tmp_path, **config)
    if content is not None:
        (tmp_path / "tiktoken.model").write_bytes(content)
    with pytest.raises(ConfigError, match=reason) as caught:
        load_tokenizer(path)
    assert "\n" not in caught.value.message


def test_a_missing_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tiktoken.__version__
    monkeypatch.setitem(sys.modules, "tiktoken", None)
    with pytest.raises(ConfigError, match=r"needs the extra kv-router\[tiktoken\]"):
        load_tokenizer(bytes_only(tmp_path, pat_str=PATTERN))
    (tmp_path / "tiktoken.model").unlink()
    (tmp_path / "tekken.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "mistral_common.tokens.tokenizers.mistral", None)
    with pytest.raises(ConfigError, match=r"needs the extra kv-router\[mistral\]"):
        load_tokenizer(str(tmp_path))


def test_the_next_vocabulary_serves_where_the_first_cannot(tmp_path: Path) -> None:
    (tmp_path / "tekken.json").write_text("{}")
    loaded = load_tokenizer(models.byte_level(tmp_path))
    assert loaded.encoder.name == "fastokens"
    assert "tekken.json cannot be loaded" in loaded.why
    assert load_tokenizer(str(tmp_path), engine="sglang").why == ""


def test_a_mistral_chat_needs_no_template_and_refuses_in_its_own_words(tekken: ChatTokenizer) -> None:
    user = {"role": "user", "content": "hi [INST]"}
    parts = {"role": "user", "content": [{"type": "text", "text": "hi [INST]"}]}
    ids = tekken.chat_ids(Chat(messages=[user]))  # type: ignore[list-item] # as it is parsed
    assert ids == tekken.chat_ids(Chat(messages=[parts]))  # type: ignore[list-item] # as it is parsed
    assert array("I", ids).tolist()[0] == 1
    with pytest.raises(Inexact, match="mistral-common refuses the chat: "):
        tekken.chat_ids(Chat(messages=[{"role": "assistant", "content": ""}, user]))  # type: ignore[list-item] # as it is parsed
    body = json.dumps({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}).encode()
    prompt = read_prompt(parse(Kind.CHAT, body), tekken)
    assert (prompt.exact, prompt.source) == (False, "text")


def test_long_call_ids_are_cut_as_vllm_cuts_them(tekken: ChatTokenizer) -> None:
    def chat(call_id: str) -> bytes:
        call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": "{}"}}
        messages = [
            {"role": "user", "content": "x"},
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": "y"},
        ]
        return tekken.chat_ids(Chat(messages=messages))  # type: ignore[arg-type] # as it is parsed

    assert chat("chatcmpl-tool-123456789") == chat("123456789")
