"""Text to token ids and back, with the chat template of a tokenizer directory.

The stand-in only ever says words that are single tokens, so that text decodes token by token and a
following turn tokenises to the same ids again.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import jinja2
import tokenizers
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_WORD = re.compile("[\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}\N{LOWER ONE EIGHTH BLOCK}][a-z]{2,}")
_LETTER = re.compile("[\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}\N{LOWER ONE EIGHTH BLOCK}a-z]")
_SPACE = str.maketrans({"\N{LATIN CAPITAL LETTER G WITH DOT ABOVE}": " ", "\N{LOWER ONE EIGHTH BLOCK}": " "})
_FEW_WORDS = 32


class TokenizerError(ValueError):
    """A directory that holds no tokenizer a worker could answer with."""


class Tokenizer:
    """One tokenizer directory; `vocabulary` are the ids the stand-in answers with.

    Raises TokenizerError for files that cannot be read, or that know no words.
    """

    def __init__(self, directory: Path) -> None:
        self.path = str(directory)
        try:
            self._load(directory)
        except Exception as error:  # the library raises nothing more particular
            raise TokenizerError(f"tokenizer {self.path}: {error}") from error
        if not self.vocabulary:
            raise TokenizerError(f"tokenizer {self.path}: it knows no words to answer with")

    def _load(self, directory: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
        words = {token_id: token for token, token_id in self._tokenizer.get_vocab().items()}
        chosen = _matching(words, _WORD)
        self._said = chosen if len(chosen) >= _FEW_WORDS else _matching(words, _LETTER)
        self.vocabulary = tuple(self._said)
        self._config = _config(directory)
        self._template = _template(directory, self._config)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a plain prompt, with whatever special tokens the tokenizer adds itself."""
        return list(self._tokenizer.encode(text).ids)

    def encode_chat(self, messages: Sequence[dict[str, Any]], **settings: Any) -> list[int]:
        """Return the ids of a rendered chat; raises jinja2.TemplateError for messages it cannot render."""
        if self._template is None:
            raise jinja2.TemplateError("this tokenizer has no chat template")
        text = self._template.render(messages=messages, **self._special_tokens(), **settings)
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def _special_tokens(self) -> dict[str, str]:
        named = {
            name: self._config.get(name) for name in ("bos_token", "eos_token", "pad_token", "unk_token")
        }
        return {
            name: token["content"] if isinstance(token, dict) else token
            for name, token in named.items()
            if token
        }

    def text(self, tokens: Sequence[int]) -> str:
        """Return the text of ids from `vocabulary`."""
        return "".join([self._said[token] for token in tokens])


def _matching(words: dict[int, str], pattern: re.Pattern[str]) -> dict[int, str]:
    return {
        token_id: words[token_id].translate(_SPACE)
        for token_id in sorted(words)
        if pattern.fullmatch(words[token_id])
    }


def _config(directory: Path) -> dict[str, Any]:
    path = directory / "tokenizer_config.json"
    config: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
    return config


def _template(directory: Path, config: dict[str, Any]) -> jinja2.Template | None:
    path = directory / "chat_template.jinja"
    source = path.read_text() if path.is_file() else config.get("chat_template")
    if isinstance(source, list):
        source = next((entry["template"] for entry in source if entry["name"] == "default"), None)
    return None if source is None else _environment().from_string(source)


def _environment() -> ImmutableSandboxedEnvironment:
    """Return what templates are written for: blocks leave no blank lines, tojson no escapes."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _tojson
    environment.globals["raise_exception"] = _raise
    return environment


def _tojson(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
