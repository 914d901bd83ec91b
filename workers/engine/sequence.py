"""The tokens of one request and the page digests over them, chained once and kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from workers.engine.hashes import TOKEN_BYTES, bigrams, chain, pack, unpack
from workers.engine.namespace import PLAIN, Namespace


@dataclass(slots=True)
class Sequence:
    """Prompt and output tokens. A page is `page_size` units; a unit is a token, or a pair when bigram."""

    data: bytearray
    page_size: int
    namespace: Namespace = PLAIN
    bigram: bool = False
    digests: list[bytes] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.data) // TOKEN_BYTES

    def append(self, token: int) -> None:
        """Add one output token."""
        self.data += token.to_bytes(TOKEN_BYTES, "little")

    def extend(self, tokens: list[int]) -> None:
        """Add output tokens."""
        self.data += pack(tokens)

    def pages(self, tokens: int) -> int:
        """Return how many full pages the first `tokens` tokens make (bigrams: one unit fewer)."""
        return max(0, tokens - self.bigram) // self.page_size

    def digests_of(self, tokens: int) -> list[bytes]:
        """Return the digests of those pages; each page is hashed once in the life of the sequence."""
        count, known = self.pages(tokens), len(self.digests)
        if count > known:
            prior = self.digests[-1] if known else self.namespace.prior()
            self.digests += chain(self._units(known, count), self._page_bytes, prior)
        return self.digests if count == len(self.digests) else self.digests[:count]

    def digests_of_pages(self, pages: int) -> list[bytes]:
        """Return the digests of the first `pages` pages."""
        return self.digests_of(pages * self.page_size + self.bigram)

    def span(self, first: int, end: int) -> bytes:
        """Return the packed tokens of pages first..end-1, for `token_ids`."""
        start, stop = first * self.page_size, end * self.page_size + self.bigram
        return bytes(self.data[start * TOKEN_BYTES : stop * TOKEN_BYTES])

    @property
    def _page_bytes(self) -> int:
        return self.page_size * TOKEN_BYTES * (1 + self.bigram)

    def _units(self, first: int, end: int) -> bytes:
        tokens = self.span(first, end)
        return bigrams(tokens) if self.bigram else tokens


def token_ids(tokens: bytes, *, bigram: bool) -> list[Any]:
    """Return what an event says about packed tokens: their ids, or pairs `[t, next t]`."""
    ids = unpack(tokens)
    return [list(pair) for pair in pairwise(ids)] if bigram else ids


def sequence_of(
    tokens: list[int], page_size: int, namespace: Namespace = PLAIN, *, bigram: bool = False
) -> Sequence:
    """Return the sequence of a prompt given as token ids; raises struct.error for an id that is no u32."""
    return Sequence(bytearray(pack(tokens)), page_size, namespace, bigram)
