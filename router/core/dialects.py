"""One event of a batch, in any dialect.

An event is a map with the key `type` (SGLang 0.5.23, vLLM 0.32) or an array whose first element is the tag
(older engines). Fields may be missing, and unknown ones may come; one of another type than it should have
makes the event one that cannot be understood.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

from router.core.blocks import pack_tokens
from router.core.events import DEVICE_TIER, Cleared, Event, Hash, Removed, Stored
from router.core.extras import beyond_lora, split_salt

# Of the bytes of a hash (vLLM's have 16 or 32), and of a tier's name.
MOST_HASH_BYTES, MOST_TIER_LETTERS = 64, 64
_STORED_FIELDS = (
    "type",
    "block_hashes",
    "parent_block_hash",
    "token_ids",
    "block_size",
    "lora_id",
    "medium",
    "lora_name",
    "extra_keys",
    "group_idx",
    "kv_cache_spec_kind",
)
_REMOVED_FIELDS = ("type", "block_hashes", "medium", "group_idx")
_NUMBERS, _ARRAY_OR_NIL = {int}, {list, type(None)}


def event_of(raw: Any) -> Event:
    """Return what an event says. Raises KeyError, TypeError, ValueError, OverflowError or IndexError."""
    fields = raw if type(raw) is dict else _named(raw)
    tag = fields["type"]
    if tag == "BlockStored":
        return _stored(fields)
    if tag == "BlockRemoved":
        return Removed(_hashes(fields["block_hashes"]), tier_of(_text(fields.get("medium"))), _group(fields))
    if tag == "AllBlocksCleared":
        return Cleared()
    raise ValueError("unknown event type")


def _named(raw: list[Any]) -> dict[str, Any]:
    """Give an array event's elements their names."""
    if type(raw) is not list:
        raise TypeError("an event is a map or an array")
    names = _STORED_FIELDS if raw[0] == "BlockStored" else _REMOVED_FIELDS
    fields = dict(zip(names, raw, strict=False))
    # SGLang's older arrays carry a map of further fields (cache_salt) where vLLM has the LoRA name.
    if type(fields.get("lora_name")) is dict:
        fields.update(fields.pop("lora_name"))
    return fields


def _stored(fields: dict[str, Any]) -> Stored:
    hashes, parent = _hashes(fields["block_hashes"]), fields["parent_block_hash"]
    if parent is not None and not _is_hash(parent):
        raise TypeError("parent_block_hash is neither int, bytes nor nil")
    ids, block_size, extras = fields["token_ids"], fields["block_size"], fields.get("extra_keys")
    if type(ids) is not list or type(block_size) is not int or type(extras) not in _ARRAY_OR_NIL:
        raise TypeError("token_ids or extra_keys is not an array, or block_size is not an int")
    return stored(
        hashes,
        parent,
        ids,
        block_size,
        tier_of(_text(fields.get("medium"))),
        lora_of(_text(fields.get("lora_name")), _number(fields.get("lora_id"))),
        _text(fields.get("cache_salt")),
        extras,
        _group(fields),
        _text(fields.get("kv_cache_spec_kind")),
    )


def stored(
    hashes: list[Hash],
    parent: Hash | None,
    ids: list[Any],
    block_size: int,
    tier: str,
    lora: str | None,
    salt: str | None,
    extras: list[Any] | None,
    group: int,
    kind: str | None,
) -> Stored:
    """Return a store of tokens or of pairs, whose extra keys may hold the salt. Raises as `event_of` does."""
    bigram = bool(ids) and type(ids[0]) is list
    left = None
    if extras:
        if parent is None and salt is None:
            salt, extras = split_salt(extras, lora)
        left = beyond_lora(extras, lora)
    tokens = pack_tokens(_flat(ids) if bigram else ids)
    return Stored(hashes, parent, tokens, block_size, bigram, tier, lora, salt, left, group, kind)


def tier_of(medium: str | None) -> str:
    """Return the name of a tier. Raises ValueError for one that is too long to be any."""
    if medium is None:
        return DEVICE_TIER
    if len(medium) > MOST_TIER_LETTERS:
        raise ValueError("medium is no tier's name")
    return medium.upper()


def lora_of(name: str | None, number: int | None) -> str | None:
    """Return the adapter's name; an id without a name makes a namespace that no request can ask for."""
    return f"\0lora_id={number}" if name is None and number is not None else name


def _is_hash(raw: Any) -> bool:
    return type(raw) is int or (type(raw) is bytes and len(raw) <= MOST_HASH_BYTES)


def _hashes(raw: Any) -> list[Hash]:
    if type(raw) is not list or not (set(map(type, raw)) <= _NUMBERS or all(map(_is_hash, raw))):
        raise TypeError("block_hashes is not an array of ints or bytes")
    return raw


def _flat(pairs: list[list[int]]) -> list[int]:
    """Return the token ids behind neighbour pairs: the first of each, and the last one's second."""
    flat = list(chain.from_iterable(pairs))
    if len(flat) != 2 * len(pairs):
        raise ValueError("bigram token ids are not pairs")
    return [*flat[::2], flat[-1]]


def _text(raw: Any) -> str | None:
    if raw is not None and type(raw) is not str:
        raise TypeError("expected a string or nil")
    return raw


def _number(raw: Any) -> int | None:
    if raw is not None and type(raw) is not int:
        raise TypeError("expected an int or nil")
    return raw


def _group(fields: dict[str, Any]) -> int:
    return _number(fields.get("group_idx")) or 0
