"""Token ids to block keys: the router's own names for the content of KV blocks.

A block's key is a chain, `key[i] = xxh3_64(tokens of block i, seed=key[i-1])`, that starts at a root made
of everything that makes equal tokens different cache content: model, LoRA adapter, cache salt, block
size. Equal keys therefore mean equal prefixes in the same namespace, whatever hash an engine uses; the
engine's hashes never enter a key. xxh3 is not a cryptographic hash, and need not be: a collision can
misroute a request, it can never make an engine serve another tenant's cache.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is a class
from typing import TYPE_CHECKING

import msgspec
from xxhash import xxh3_64_intdigest

if TYPE_CHECKING:
    from collections.abc import Iterable

_U64 = "Q"
TOKEN_BYTES = 4
# In letters: salts and adapters are named by clients, and thousands of long ones would fill the memory.
_LONGEST_CACHED = 256


class Namespace(msgspec.Struct, frozen=True, gc=False):
    """What cached content belongs to besides its tokens (KV_EVENTS.md 3).

    `text`: the "tokens" are a text's bytes. No event is ever of such a namespace, so that guesses are only
    matched against guesses.
    """

    model: str
    lora: str | None = None
    cache_salt: str | None = None
    text: bool = False


def pack_tokens(ids: Iterable[int]) -> bytes:
    """Return token ids as little-endian u32 bytes.

    Raises ValueError for anything that is not an int in u32 range. About 10 ns a token.
    """
    numbers = ids if type(ids) is list else list(ids)
    try:
        return _packer(len(numbers)).pack(*numbers)
    except StructError as error:
        raise ValueError(str(error)) from error


@lru_cache(maxsize=1024)
def _packer(count: int) -> Struct:
    """Return what packs so many numbers, in half the time that an array takes for a block of them."""
    return Struct(f"<{count}I")


def namespace_root(namespace: Namespace, block_size: int, *, bigram: bool = False) -> int:
    """Return the key that every chain of this namespace starts from. About 0.3 us where it is cached."""
    given = len(namespace.cache_salt or "") + len(namespace.lora or "")
    root = _root if given <= _LONGEST_CACHED else _root.__wrapped__
    return root(namespace, block_size, bigram)


@lru_cache(maxsize=4096)
def _root(namespace: Namespace, block_size: int, bigram: bool) -> int:
    parts: tuple[object, ...] = (namespace.model, namespace.lora, namespace.cache_salt, block_size, bigram)
    if namespace.text:
        parts = (*parts, "text")
    return xxh3_64_intdigest(msgspec.msgpack.encode(parts))


def block_keys(
    tokens: bytes,
    block_size: int,
    start: int,
    *,
    bigram: bool = False,
    extras: Iterable[bytes] | None = None,
) -> array[int]:
    """Return one key per full block of `tokens` (u32 LE), chained from the key `start`.

    With `bigram` (SGLang with EAGLE or MTP) a block is `block_size` pairs of neighbours, so it also
    covers the first token after it. `extras` gives each block's further extra keys, encoded
    (multimodal content), which make it different content. About 0.1 us a block of 16 tokens.
    """
    if extras is not None:
        return _mixed_keys(tokens, block_size, start, extras, bigram=bigram)
    width = block_size * TOKEN_BYTES
    key, digest = start, xxh3_64_intdigest
    if bigram:
        size = width + TOKEN_BYTES
        places = range(0, len(tokens) - size + 1, width)
        return array(_U64, [key := digest(tokens[at : at + size], key) for at in places])
    whole = tokens[: len(tokens) // width * width]
    return array(_U64, [key := digest(block, key) for (block,) in _cutter(width).iter_unpack(whole)])


@lru_cache(maxsize=64)
def _cutter(width: int) -> Struct:
    """Return what cuts bytes into pieces of a width, faster than slices do."""
    return Struct(f"{width}s")


def _mixed_keys(
    tokens: bytes, block_size: int, start: int, extras: Iterable[bytes], *, bigram: bool
) -> array[int]:
    width = block_size * TOKEN_BYTES
    overhang = TOKEN_BYTES if bigram else 0
    key = start
    keys = array(_U64)
    for at, extra in zip(range(0, len(tokens), width), extras, strict=False):
        if extra:
            key = xxh3_64_intdigest(extra, key)
        key = xxh3_64_intdigest(tokens[at : at + width + overhang], key)
        keys.append(key)
    return keys


class PromptBlocks:
    """One prompt as block keys, for every block size that the fleet uses.

    `tokens` is u32 LE and may be empty when the ids could not be known; `count` is the prompt's length
    in tokens all the same, further prompts of the same request included. `reusable` is how many of the
    leading tokens an engine can take from its cache, all but the last unless given. `reads_cache` is False
    when the engine will compute all of it anew. Keys are computed once per (block size, bigram) and kept in
    `keys`, where those that are known already may be. `noted`: it counts among those who ask for its prefix.
    """

    __slots__ = ("_keys", "count", "namespace", "noted", "reads_cache", "reusable", "tokens")

    def __init__(
        self,
        tokens: bytes,
        count: int,
        namespace: Namespace,
        *,
        reads_cache: bool = True,
        reusable: int | None = None,
        keys: dict[tuple[int, bool], array[int]] | None = None,
    ) -> None:
        self.tokens = tokens
        self.count = count
        self.namespace = namespace
        self.reads_cache = reads_cache
        self.noted = False
        self.reusable = max(0, count - 1) if reusable is None else reusable
        self._keys: dict[tuple[int, bool], array[int]] = {} if keys is None else keys

    def keys(self, block_size: int, *, bigram: bool) -> array[int]:
        """Return the keys of all full blocks of the prompt, first block first."""
        size = (block_size, bigram)
        keys = self._keys.get(size)
        if keys is None:
            root = namespace_root(self.namespace, block_size, bigram=bigram)
            keys = self._keys[size] = block_keys(self.tokens, block_size, root, bigram=bigram)
        return keys

    def usable(self, block_size: int) -> int:
        """Return how many blocks an engine can reuse: it always recomputes the last prompt token.

        Seen on SGLang 0.5.23 and vLLM 0.32: a prompt of exactly n blocks hits at most n - 1.
        """
        return self.reusable // block_size if self.reads_cache else 0
