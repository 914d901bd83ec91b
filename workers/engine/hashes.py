"""Block hashes: a SHA-256 chain over the pages of a prompt, as SGLang 0.5.23 computes it.

A digest names a whole prefix: two equal digests mean equal tokens, equal salt and equal adapter. The
cache relies on this and compares digests only.
"""

from __future__ import annotations

import struct
from hashlib import sha256
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TOKEN_BYTES = 4
_SALT_MARK = b"sglang-cache-salt-v1\0"
_ADAPTER_MARK = b"stand-in-adapter-v1\0"

HashForm: TypeAlias = "Callable[[bytes], int | bytes]"


def pack(tokens: Sequence[int]) -> bytes:
    """Return token ids as little-endian u32; raises struct.error for an id outside 0..2**32-1."""
    return struct.pack(f"<{len(tokens)}I", *tokens)


def unpack(data: bytes | bytearray) -> list[int]:
    """Return the token ids that `pack` wrote."""
    return list(struct.unpack(f"<{len(data) // TOKEN_BYTES}I", data))


def bigrams(data: bytes | bytearray) -> bytes:
    """Return n-1 overlapping pairs of n packed tokens, packed: the unit EAGLE and MTP models cache by."""
    tokens = unpack(data)
    return pack([token for pair in pairwise(tokens) for token in pair])


def prior_of(cache_salt: str | None, adapter: str | None) -> bytes:
    """Return what the first page's digest is chained to: nothing for the plain namespace.

    The salt's rule is SGLang's. The adapter's is our own: an engine hashes an internal id there.
    """
    prior = b"" if cache_salt is None else sha256(_SALT_MARK + cache_salt.encode()).digest()
    return prior if adapter is None else sha256(prior + _ADAPTER_MARK + adapter.encode()).digest()


def chain(units: bytes | bytearray, page_bytes: int, prior: bytes) -> list[bytes]:
    """Return the 32-byte digest of every full page of `units`; one SHA-256 per page."""
    digests = []
    for start in range(0, len(units) - page_bytes + 1, page_bytes):
        prior = sha256(prior + units[start : start + page_bytes]).digest()
        digests.append(prior)
    return digests


def signed_hash(digest: bytes) -> int:
    """Return SGLang's event hash: the first 8 bytes, big-endian, signed."""
    return int.from_bytes(digest[:8], "big", signed=True)


def unsigned_hash(digest: bytes) -> int:
    """Return vLLM's default event hash: the low 8 bytes, unsigned."""
    return int.from_bytes(digest[-8:], "big")


def whole_hash(digest: bytes) -> bytes:
    """Return vLLM's event hash with VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0: the digest itself."""
    return digest
