"""A model's files from the Hugging Face hub, by name.

What is in the hub's cache on this machine is taken from there; only then is the network asked. Blocks, maybe
for minutes: call it from a thread, and never while a worker waits to be taken in.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from router.errors import ConfigError

PATTERNS = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
    "tekken.json",
    "tiktoken.model",
    "*.tiktoken",
)
"""The files that tokenising needs; weights are never fetched."""

_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def is_hub_name(text: str) -> bool:
    """Whether `text` could be a model's name on the hub ("org/name") and is no path here. Asks the disk."""
    try:
        return _NAME.fullmatch(text) is not None and not Path(text).exists()
    except OSError:
        return False


def fetch_model(name: str) -> str:
    """Return the directory that holds a model's files; raise ConfigError with the reason for none."""
    hub = importlib.import_module("huggingface_hub")  # half a second, and not needed by every router
    try:
        return str(hub.snapshot_download(name, allow_patterns=list(PATTERNS), local_files_only=True))
    except Exception:  # noqa: BLE001, S110 (not in the cache; the network may have it)
        pass
    try:
        return str(hub.snapshot_download(name, allow_patterns=list(PATTERNS)))
    except Exception as error:  # noqa: BLE001 (offline, not found, not allowed: all of them are reasons)
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ConfigError(f"tokenizer: {name} cannot be fetched from the hub: {reason}") from None
