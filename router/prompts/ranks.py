"""tiktoken files: ranks of byte strings, and what such a file leaves out.

The file holds neither the pattern that splits text nor the special tokens. A `pat_str` and an
`added_tokens_decoder` in the tokenizer_config.json beside it say both; for vocabularies that are known by
their size they are filled in.
"""

from __future__ import annotations

import base64
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from router.errors import ConfigError
from router.prompts.encoders import FastokensEncoder, TiktokenEncoder, difference

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from router.prompts.encoders import Encoder

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"


def _split(letters: str, numbers: str) -> str:
    """Return the splitting pattern of this family; `letters` is a word's character class."""
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?{letters}+|{numbers}"
        rf"| ?[^\s{letters.strip('[]')}\p{{N}}]+[\r\n]*|{_SPACES}"
    )


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of a vocabulary: how it splits text, and whether text is brought into form NFC first."""

    pattern: str
    composed: bool


FAMILIES: dict[int, Family] = {
    128_000: Family(_split(r"\p{L}", r"\p{N}{1,3}"), composed=False),  # Llama 3
    151_643: Family(_split(r"\p{L}", r"\p{N}"), composed=True),  # Qwen 1 to 3
    248_044: Family(_split(r"[\p{L}\p{M}]", r"\p{N}"), composed=True),  # Qwen 3.5, 3.6
}
"""By the number of ranks in the file."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """A tiktoken vocabulary, whole."""

    ranks: dict[bytes, int]
    pattern: str
    special_tokens: dict[str, int]
    composed: bool


def load_ranks(path: Path, config: Mapping[str, Any]) -> tuple[Encoder, str]:
    """Return the encoder for a tiktoken file, and why it is not fastokens. Raises ConfigError."""
    try:
        tiktoken = importlib.import_module("tiktoken")
    except ImportError:
        raise ConfigError(f"tokenizer: {path} needs the extra kv-router[tiktoken]") from None
    ranks = _read(path, config)
    encoding = tiktoken.Encoding(
        path.name,
        pat_str=ranks.pattern,
        mergeable_ranks=ranks.ranks,
        special_tokens=ranks.special_tokens,
    )
    reference = TiktokenEncoder(encoding, ranks)
    try:
        fast = FastokensEncoder.from_ranks(path, ranks)
    except (ValueError, RuntimeError) as error:
        return reference, f"fastokens cannot load it: {error}"
    other = difference(fast, reference)
    return (reference, other) if other else (fast, "")


def _read(path: Path, config: Mapping[str, Any]) -> Ranks:
    try:
        lines = [line.split() for line in path.read_bytes().splitlines() if line]
        ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    except ValueError:
        raise ConfigError(f"tokenizer: {path}: expected lines of a base64 token and its rank") from None
    family = FAMILIES.get(len(ranks))
    pattern = config.get("pat_str", family.pattern if family else None)
    if not isinstance(pattern, str):
        raise ConfigError(
            f"tokenizer: {path} does not say how it splits text; expected pat_str in tokenizer_config.json"
        )
    return Ranks(ranks, pattern, _special_tokens(path, config), composed=bool(family and family.composed))


def _special_tokens(path: Path, config: Mapping[str, Any]) -> dict[str, int]:
    """Return what `added_tokens_decoder` (id -> token) says, the other way round."""
    added = config.get("added_tokens_decoder", {})
    try:
        return {str(token["content"]): int(token_id) for token_id, token in added.items()}
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ConfigError(
            f"tokenizer: added_tokens_decoder beside {path}: expected ids and tokens with their content"
        ) from None
