"""Payloads of KV-event streams to batches of events.

A batch is an array `[ts, events, rank]`, possibly longer. What cannot be understood costs one event, never
its batch: it is counted, and the rest applies. Only a payload that is not such an array at all is refused,
and one that would hold everybody up.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from router.core.blocks import pack_tokens
from router.core.dialects import MOST_HASH_BYTES, MOST_TIER_LETTERS, event_of, lora_of, stored, tier_of
from router.core.events import Batch, Cleared, Event, Removed, Stored

# vLLM tells of each block that it evicts in an event of its own: a step has thousands.
MOST_EVENTS = 65_535
# In bytes: smaller ones have no more events than that, or hardly.
_LARGE = 1 << 17
_Hash = int | Annotated[bytes, msgspec.Meta(max_length=MOST_HASH_BYTES)]
_Medium = Annotated[str, msgspec.Meta(max_length=MOST_TIER_LETTERS)]


class WireError(ValueError):
    """A payload that is not a batch."""


class _Store(msgspec.Struct, tag_field="type", tag="BlockStored", gc=False):
    block_hashes: list[_Hash]
    parent_block_hash: _Hash | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None = None
    medium: _Medium | None = None
    lora_name: str | None = None
    extra_keys: list[Any] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    cache_salt: str | None = None


class _Removal(msgspec.Struct, tag_field="type", tag="BlockRemoved", gc=False):
    block_hashes: list[_Hash]
    medium: _Medium | None = None
    group_idx: int | None = None


class _Clear(msgspec.Struct, tag_field="type", tag="AllBlocksCleared", gc=False):
    pass


class _Usual(msgspec.Struct, array_like=True, gc=False):
    ts: float
    events: list[_Store | _Removal | _Clear]
    rank: int | None


# Most batches are maps of the usual types; whatever else comes takes the longer way.
_decode_usual = msgspec.msgpack.Decoder(_Usual).decode
_decode_parts = msgspec.msgpack.Decoder(list[msgspec.Raw]).decode
_decode = msgspec.msgpack.Decoder().decode
_NOT_UNDERSTOOD = (
    msgspec.MsgspecError,
    KeyError,
    TypeError,
    ValueError,
    OverflowError,
    IndexError,
    RecursionError,
)


def decode_batch(payload: bytes) -> Batch:
    """Decode one payload frame. Raises WireError when it is not a batch.

    Cost: about 2 us an event and 25 ns a token.
    """
    if len(payload) > _LARGE:
        _outline(payload)
    try:
        usual = _decode_usual(payload)
        return Batch(_finite(usual.ts), [_usual_event(event) for event in usual.events], usual.rank)
    except _NOT_UNDERSTOOD:
        return _decode_any(payload)


def _usual_event(event: _Store | _Removal | _Clear) -> Event:
    if type(event) is _Store:
        name, lora_id, ids = event.lora_name, event.lora_id, event.token_ids
        if lora_id is None and name is None and event.extra_keys is None:
            return Stored(
                event.block_hashes,
                event.parent_block_hash,
                pack_tokens(ids),
                event.block_size,
                False,
                tier_of(event.medium),
                None,
                event.cache_salt,
                None,
                event.group_idx or 0,
                event.kv_cache_spec_kind,
            )
        return stored(
            event.block_hashes,
            event.parent_block_hash,
            ids,
            event.block_size,
            tier_of(event.medium),
            lora_of(name, lora_id),
            event.cache_salt,
            event.extra_keys,
            event.group_idx or 0,
            event.kv_cache_spec_kind,
        )
    if type(event) is _Removal:
        return Removed(event.block_hashes, tier_of(event.medium), event.group_idx or 0)
    return Cleared()


def _decode_any(payload: bytes) -> Batch:
    """Decode the parts one by one, so that one that cannot be costs no other."""
    parts = _outline(payload)
    try:
        ts = _decode(parts[0])
        rank = _decode(parts[2]) if len(parts) > 2 else None  # noqa: PLR2004 - the wire's shape
    except _NOT_UNDERSTOOD as error:
        raise WireError(f"not MessagePack: {error}") from error
    if type(ts) is not float and type(ts) is not int:
        raise WireError("the batch's time is not a number")
    return _batch(_finite(float(ts)), _decode_parts(parts[1]), rank if type(rank) is int else None)


def _outline(payload: bytes) -> list[msgspec.Raw]:
    """Return the parts of a payload that is a batch of not too many events. About 5 ns a value in it."""
    try:
        parts = _decode_parts(payload)
    except _NOT_UNDERSTOOD as error:
        raise WireError(f"not MessagePack: {error}") from error
    events = _length(parts[1]) if len(parts) > 1 else None
    if events is None:
        raise WireError("not an array of time, events and rank")
    if events > MOST_EVENTS:
        raise WireError(f"{events} events, more than {MOST_EVENTS} at once")
    return parts


def _length(raw: msgspec.Raw) -> int | None:
    """Return the length of an array, None of what is none (MessagePack's own first bytes)."""
    head = bytes(memoryview(raw)[:5])
    if 0x90 <= head[0] <= 0x9F:  # noqa: PLR2004 - see above
        return head[0] & 0x0F
    size = {0xDC: 3, 0xDD: 5}.get(head[0])
    return None if size is None else int.from_bytes(head[1:size], "big")


def _batch(ts: float, raw_events: list[msgspec.Raw], rank: int | None) -> Batch:
    events: list[Event] = []
    undecodable = 0
    for raw in raw_events:
        try:
            events.append(event_of(_decode(raw)))
        except _NOT_UNDERSTOOD:
            undecodable += 1
    return Batch(ts, events, rank, undecodable)


def _finite(ts: float) -> float:
    """Return a time. Raises WireError for what is none: it would compare with no other."""
    if ts - ts:
        raise WireError("the batch's time is not a number")
    return ts
