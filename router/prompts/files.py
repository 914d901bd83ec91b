"""The files of a model that tokenising needs, as Hugging Face lays them out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from router.errors import ConfigError
from router.named_file import read_named

VOCABULARIES = ("tokenizer.json", "tekken.json", "tiktoken.model", "*.tiktoken")
"""What a vocabulary's file is called, in the order in which SGLang looks."""

_MOST_BYTES = 2**28  # of a file beside a vocabulary
_EXPECTED = "expected a tokenizer.json, tekken.json, tiktoken.model or *.tiktoken, or the directory it is in"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """The vocabularies found, best first, and what stands beside them.

    `templates` by name ("default", "tool_use"), `special_tokens` by role, `config` is what is in
    tokenizer_config.json, `architecture` what config.json calls the `model_type`, "" without it.
    """

    vocabularies: tuple[Path, ...]
    templates: dict[str, str]
    special_tokens: dict[str, str]
    config: dict[str, Any]
    architecture: str = ""


def read_model_files(path: str, *, mistral_first: bool = False) -> ModelFiles:
    """Read what lies at `path` (a vocabulary or its directory) and beside it; raise ConfigError.

    `mistral_first`: take tekken.json where there is also a tokenizer.json, as vLLM does.
    """
    try:
        return _read_model_files(Path(path), mistral_first=mistral_first)
    except OSError as error:  # also from asking whether a file is there, in a directory that is not ours
        raise ConfigError(f"tokenizer: {path} cannot be read: {error}") from None


def _read_model_files(given: Path, *, mistral_first: bool) -> ModelFiles:
    directory = given if given.is_dir() else given.parent
    found = _vocabularies(directory) if given.is_dir() else [given] if given.is_file() else []
    if not found:
        missing = given / "tokenizer.json" if given.is_dir() else given
        raise ConfigError(f"tokenizer: {missing} is not a file; {_EXPECTED}")
    if mistral_first:
        found.sort(key=lambda path: path.name != "tekken.json")
    config = _read_json(directory / "tokenizer_config.json")
    special = {
        **_special_tokens(_read_json(directory / "special_tokens_map.json")),
        **_special_tokens(config),
    }
    architecture = str(_read_json(directory / "config.json").get("model_type", ""))
    return ModelFiles(tuple(found), _templates(directory, config), special, config, architecture)


def _vocabularies(directory: Path) -> list[Path]:
    return [path for name in VOCABULARIES for path in sorted(directory.glob(name)) if path.is_file()]


def _templates(directory: Path, config: dict[str, Any]) -> dict[str, str]:
    """A chat_template.jinja stands before the config's own, which is one template or a list of named ones.

    Further named ones are in additional_chat_templates (transformers 5).
    """
    named = {
        path.stem: _read_text(path) for path in sorted(directory.glob("additional_chat_templates/*.jinja"))
    }
    file = directory / "chat_template.jinja"
    if file.is_file():
        return {**named, "default": _read_text(file)}
    value = config.get("chat_template")
    if isinstance(value, str):
        return {**named, "default": value}
    listed = value if isinstance(value, list) else []
    try:
        return {**named, **{str(each["name"]): str(each["template"]) for each in listed}}
    except (KeyError, TypeError):
        raise ConfigError(
            f"tokenizer: chat_template in {directory}: expected a string or a list of name and template"
        ) from None


def _special_tokens(config: dict[str, Any]) -> dict[str, str]:
    """Return bos_token, eos_token and their like; a token is a string, or an object with its content."""
    tokens = {}
    for name, value in config.items():
        text = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(text, str):
            tokens[name] = text
    return tokens


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(_read_text(path), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError) as error:
        raise ConfigError(f"tokenizer: {path} is not a JSON object: {error}") from None


def _read_text(path: Path) -> str:
    try:
        return read_named(path, _MOST_BYTES).decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"tokenizer: {path} is not UTF-8: {error}") from None
