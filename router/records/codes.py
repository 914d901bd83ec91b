"""Codes for what must not be read from a record: token blocks, the engines' hashes of them, cache salts.

A code is 64 bits of BLAKE2b under a secret that is made anew for each session and never written: equal things
have equal codes within a session, and nothing else can be told. Engines' own hashes are chained over tokens
without a secret, so that they could be found by trying; router.core's keys too. What remains is which blocks
are equal: with blocks of one token (an engine's choice) that is a cipher of tokens by numbers, which enough
text can break, so such a record is to be kept like the prompts themselves.
"""

from __future__ import annotations

import sys
from array import array
from hashlib import blake2b
from secrets import token_bytes
from typing import TYPE_CHECKING

from router.core.blocks import TOKEN_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CODE_BYTES = 8
_SECRET_BYTES = 32
_WORD = (1 << 64) - 1
# Codes made between two chances for other threads; about 100 us.
_AT_ONCE = 128
# Of one event or prompt, made up, times the bytes of a code.
_MOST_BYTES = 2**30
_TOKENS, _HASH, _SALT = b"tokens", b"hash", b"salt"


class Codes:
    """Makes codes under one secret. `pause` is called now and then while many are made.

    About 0.6 us each.
    """

    __slots__ = ("_hash", "_pause", "_salt", "_tokens")

    def __init__(self, pause: Callable[[], object], secret: bytes | None = None) -> None:
        key = secret or token_bytes(_SECRET_BYTES)
        self._pause = pause
        self._tokens, self._hash, self._salt = (
            blake2b(digest_size=CODE_BYTES, key=key, person=use) for use in (_TOKENS, _HASH, _SALT)
        )

    def blocks(
        self, tokens: bytes, block_size: int, *, bigram: bool, extras: Iterable[bytes] | None = None
    ) -> bytes:
        """Return the codes of the full blocks of `tokens` (u32 LE); see `router.core.blocks.block_keys`.

        Of a block of one token half a code is kept: it is long enough for the followers of one block.
        """
        width = block_size * TOKEN_BYTES
        size = width + (TOKEN_BYTES if bigram else 0)
        parts = [tokens[at : at + size] for at in range(0, len(tokens) - size + 1, width)]
        if extras is not None:
            parts = [part + extra for part, extra in zip(parts, extras, strict=False)]
        return self._all(self._tokens, parts, code_bytes(block_size))

    def hashes(self, hashes: Iterable[int | bytes]) -> bytes:
        """Return the codes of engines' hashes, of which the lower 64 bits count."""
        return self._all(self._hash, [_packed(one) for one in hashes])

    def hash(self, one: int | bytes) -> int:
        """Return the code of an engine's hash as a number."""
        return numbers(self.hashes((one,)))[0]

    def salt(self, salt: str | None) -> str | None:
        """Return what stands for a cache salt."""
        return None if salt is None else self._all(self._salt, [salt.encode(errors="replace")]).hex()

    def _all(self, base: blake2b, parts: list[bytes], size: int = CODE_BYTES) -> bytes:
        made = bytearray()
        for number, part in enumerate(parts, 1):
            one = base.copy()
            one.update(part)
            made += one.digest()[:size]
            if not number % _AT_ONCE:
                self._pause()
        return bytes(made)


def _packed(one: int | bytes) -> bytes:
    return b"i" + (one & _WORD).to_bytes(8, "little") if isinstance(one, int) else b"b" + one


def numbers(codes: bytes) -> array[int]:
    """Return codes as numbers. Raises ValueError when they are not whole."""
    found = array("Q")
    found.frombytes(codes)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def code_bytes(block_size: int) -> int:
    """Return how many bytes the code of a block takes."""
    return min(CODE_BYTES, block_size * TOKEN_BYTES)


def as_tokens(codes: bytes, block_size: int) -> bytes:
    """Return made-up tokens (u32 LE) for blocks of this size, equal where the codes are.

    Raises ValueError for a size that no block has, and for codes that are not whole.
    """
    width, size = block_size * TOKEN_BYTES, code_bytes(block_size)
    if width <= 0 or width * len(codes) > _MOST_BYTES or len(codes) % size:
        raise ValueError(f"{len(codes)} bytes for blocks of {block_size} tokens")
    if width == size:
        return codes
    rest = bytes(width - size)
    return b"".join([codes[at : at + size] + rest for at in range(0, len(codes), size)])
