"""What vLLM's extra keys say of each block besides its tokens: adapter, salt, and further content.

vLLM 0.32 lists, for each block, the LoRA name, then multimodal keys (arrays), then the salt (a string), and
the salt on the first block only.
"""

from __future__ import annotations

from typing import Any

import msgspec


def split_salt(extras: list[Any], lora: str | None) -> tuple[str | None, list[Any]]:
    """Split the cache salt from the first block's extra keys. Raises TypeError."""
    first = _without_lora(extras[0], lora)
    if not first or type(first[-1]) is not str:
        return None, extras
    return first[-1], [first[:-1], *extras[1:]]


def beyond_lora(extras: list[Any], lora: str | None) -> list[bytes] | None:
    """Return what is left of each block's extra keys, encoded, or None when nothing is. Raises TypeError."""
    if not any(extras):
        return None
    left = [_without_lora(extra, lora) for extra in extras]
    return [msgspec.msgpack.encode(extra) if extra else b"" for extra in left] if any(left) else None


def _without_lora(extra: Any, lora: str | None) -> list[Any]:
    if extra is None:
        return []
    if type(extra) is not list:
        raise TypeError("an extra key is not an array")
    return extra[1:] if extra and lora is not None and extra[0] == lora else extra
