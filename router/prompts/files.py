"""The files of a model that tokenising needs, as Hugging Face lays them out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from router.errors import ConfigError


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """Where tokenizer.json is, chat templates by name ("default", "tool_use"), special tokens by role."""

    tokenizer: Path
    templates: dict[str, str]
    special_tokens: dict[str, str]


def read_model_files(path: str) -> ModelFiles:
    """Read what lies at `path` (tokenizer.json or its directory) and beside it; raise ConfigError."""
    try:
        return _read_model_files(Path(path))
    except OSError as error:  # also from asking whether a file is there, in a directory that is not ours
        raise ConfigError(f"tokenizer: {path} cannot be read: {error}") from None


def _read_model_files(given: Path) -> ModelFiles:
    directory = given if given.is_dir() else given.parent
    tokenizer = given / "tokenizer.json" if given.is_dir() else given
    if not tokenizer.is_file():
        raise ConfigError(f"tokenizer: {tokenizer} is not a file; expected a tokenizer.json or its directory")
    config = _read_json(directory / "tokenizer_config.json")
    special = {
        **_special_tokens(_read_json(directory / "special_tokens_map.json")),
        **_special_tokens(config),
    }
    return ModelFiles(tokenizer, _templates(directory, config), special)


def _templates(directory: Path, config: dict[str, Any]) -> dict[str, str]:
    """A chat_template.jinja stands before the config's own, which is one template or a list of named ones."""
    file = directory / "chat_template.jinja"
    if file.is_file():
        return {"default": _read_text(file)}
    value = config.get("chat_template")
    if isinstance(value, str):
        return {"default": value}
    named = value if isinstance(value, list) else []
    try:
        return {str(each["name"]): str(each["template"]) for each in named}
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
    except msgspec.DecodeError as error:
        raise ConfigError(f"tokenizer: {path} is not a JSON object: {error}") from None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"tokenizer: {path} is not UTF-8: {error}") from None
