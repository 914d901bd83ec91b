"""From text to token ids: one class for every library that can do it.

fastokens is 20 to 140 times as fast as Hugging Face's `tokenizers` and 5 to 10 times as fast as `tiktoken`,
but it serves a vocabulary only after it gave the same ids as the slow library on every text of `samples`,
also from its segment cache. What fails runs on the slow one, which is right by definition.
"""

from __future__ import annotations

import unicodedata
from array import array
from typing import TYPE_CHECKING, ClassVar, Protocol

import fastokens
import tokenizers

from router.errors import ConfigError
from router.prompts import samples

if TYPE_CHECKING:
    from pathlib import Path

    import tiktoken

    from router.prompts.ranks import Ranks

SEGMENT_CACHE_BYTES = 64 * 1024 * 1024
"""What fastokens may keep per model: the texts between special tokens that it has seen, with their ids.

A conversation's next turn then costs its new text: turn n of a 32k-token chat takes 0.15 ms, not 2 to 4 ms.
"""


class Encoder(Protocol):
    """Text to token ids.

    `inline_bytes` is the length of a body up to which tokenising takes about 1 ms of one core, `most_bytes`
    the one up to which it takes no more than about half a second.
    """

    name: ClassVar[str]
    inline_bytes: ClassVar[int]
    most_bytes: ClassVar[int]

    def encode(self, text: str, *, special: bool) -> bytes:
        """Return ids as u32 little-endian bytes; `special` adds what the post-processor adds (BOS, ...)."""


class Reference(Encoder, Protocol):
    """An encoder that is right by definition."""

    def added_tokens(self) -> list[str]:
        """Return the texts of the special and added tokens, by id."""


class FastokensEncoder:
    """fastokens 0.3.5: releases the GIL.

    200 tokens take 25 us, 32 KiB of text 0.4 to 1.9 ms (English to random letters), and text that its
    segment cache knows about 1 us per 2 KiB. `composed`: bring text into Unicode's form NFC first.
    """

    name: ClassVar[str] = "fastokens"
    inline_bytes: ClassVar[int] = 32_768
    most_bytes: ClassVar[int] = 8_388_608

    def __init__(self, tokenizer: fastokens.Tokenizer, *, composed: bool = False) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.enable_segment_cache(SEGMENT_CACHE_BYTES)
        self._tokenizer = tokenizer
        self._composed = composed

    @classmethod
    def from_file(cls, path: Path) -> FastokensEncoder:
        """Load a tokenizer.json; raises ValueError or RuntimeError for what fastokens cannot do."""
        return cls(fastokens.Tokenizer.from_file(str(path)))

    @classmethod
    def from_ranks(cls, path: Path, ranks: Ranks) -> FastokensEncoder:
        """Load a tiktoken file; raises ValueError or RuntimeError for what fastokens cannot do."""
        tokenizer = fastokens.Tokenizer.from_tiktoken(
            str(path), pattern=ranks.pattern, special_tokens=ranks.special_tokens
        )
        return cls(tokenizer, composed=ranks.composed)

    def encode(self, text: str, *, special: bool) -> bytes:
        """See Encoder."""
        if self._composed:
            text = unicodedata.normalize("NFC", text)
        ids: bytes = self._tokenizer.encode_batch_flat([text], special)[0]
        return ids


class TokenizersEncoder:
    """Hugging Face's tokenizers 0.23: 0.5 us per byte of text.

    Its `encode` keeps the GIL for as long as it runs (measured: 400 ms for 400 KB); its batch calls do not.
    """

    name: ClassVar[str] = "tokenizers"
    inline_bytes: ClassVar[int] = 2_048
    most_bytes: ClassVar[int] = 1_048_576

    def __init__(self, path: Path) -> None:
        """Load a tokenizer.json; raises ConfigError."""
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 (tokenizers raises bare Exception)
            raise ConfigError(f"tokenizer: {path} cannot be loaded: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str, *, special: bool) -> bytes:
        """See Encoder."""
        encoding = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)[0]
        return array("I", encoding.ids).tobytes()

    def added_tokens(self) -> list[str]:
        """See Reference."""
        added = self._tokenizer.get_added_tokens_decoder()
        return [added[token_id].content for token_id in sorted(added)]


class TiktokenEncoder:
    """tiktoken 0.14: about 0.1 us per byte, without the GIL. It has no rule for BOS: none is added."""

    name: ClassVar[str] = "tiktoken"
    inline_bytes: ClassVar[int] = 8_192
    most_bytes: ClassVar[int] = 4_194_304

    def __init__(self, encoding: tiktoken.Encoding, ranks: Ranks) -> None:
        self._encoding = encoding
        self._ranks = ranks

    def encode(self, text: str, *, special: bool) -> bytes:  # noqa: ARG002 (see the class)
        """See Encoder."""
        if self._ranks.composed:
            text = unicodedata.normalize("NFC", text)
        return array("I", self._encoding.encode(text, allowed_special="all")).tobytes()

    def added_tokens(self) -> list[str]:
        """See Reference."""
        return sorted(self._ranks.special_tokens, key=self._ranks.special_tokens.__getitem__)


def difference(fast: Encoder, reference: Reference) -> str:
    """Return how the two differ on the samples, asked twice so that caches answer too, or an empty string."""
    texts = (*samples.TEXTS, *samples.with_added_tokens(reference.added_tokens()))
    for text in texts:
        for special in (False, True):
            expected = reference.encode(text, special=special)
            if any(fast.encode(text, special=special) != expected for _ in range(2)):
                return f"{fast.name} gives other ids for {text[:40]!a}"
    return ""
