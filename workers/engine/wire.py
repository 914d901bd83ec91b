"""Batches to msgpack, in every shape an engine in the field sends.

Maps (`type` first) are what SGLang 0.5.23 and vLLM 0.32 send; arrays with the tag first are what older
ones send. Field order is the engines' own, so that payloads can be compared byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from workers.engine.events import Cleared, Removed, Stored

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.events import Batch, Event

_GROUP = 0
_KIND = "full_attention"
_encoder = msgspec.msgpack.Encoder()


def encode(batch: Batch, rank: int, shape: Callable[[Event], Any]) -> bytes:
    """Return the payload `[ts, [event, ...], rank]`, each event in the given shape."""
    return _encoder.encode([batch.ts, [shape(event) for event in batch.events], rank])


def _stored_map(event: Stored) -> dict[str, Any]:
    return {
        "type": "BlockStored",
        "block_hashes": event.hashes,
        "parent_block_hash": event.parent,
        "token_ids": event.token_ids,
        "block_size": event.block_size,
        "lora_id": event.namespace.lora_id,
        "medium": event.medium,
    }


def sglang_map(event: Event) -> dict[str, Any]:
    """Return an event as SGLang 0.5.23 sends it; cache_salt and lora_name only when there are any."""
    match event:
        case Stored():
            names = {"cache_salt": event.namespace.cache_salt, "lora_name": event.namespace.lora_name}
            return _stored_map(event) | {key: name for key, name in names.items() if name is not None}
        case Removed():
            return {"type": "BlockRemoved", "block_hashes": event.hashes, "medium": event.medium}
        case Cleared():
            return {"type": "AllBlocksCleared"}


def vllm_map(event: Event) -> dict[str, Any]:
    """Return an event as vLLM 0.32 sends it, for one full-attention group."""
    match event:
        case Stored():
            session = {} if event.session_id is None else {"session_id": event.session_id}
            return _vllm_stored(event) | session
        case Removed() | Cleared():
            group = {"group_idx": _GROUP} if isinstance(event, Removed) else {}
            return sglang_map(event) | group


def _vllm_stored(event: Stored) -> dict[str, Any]:
    return _stored_map(event) | {
        "lora_name": event.namespace.lora_name,
        "extra_keys": extra_keys(event),
        "group_idx": _GROUP,
        "kv_cache_spec_kind": _KIND,
    }


def sglang_array(event: Event) -> list[Any]:
    """Return an event as SGLang before the map shape sent it; a salt travels in a map at index 7."""
    match event:
        case Stored():
            salt = event.namespace.cache_salt
            return _tagged(_stored_map(event)) + ([] if salt is None else [{"cache_salt": salt}])
        case Removed() | Cleared():
            return _tagged(sglang_map(event))


def vllm_array(event: Event) -> list[Any]:
    """Return an event as vLLM before the map shape sent it; the last element is the sliding window."""
    match event:
        case Stored():
            return [*_tagged(_vllm_stored(event)), None]
        case Removed() | Cleared():
            return _tagged(vllm_map(event))


def _tagged(fields: dict[str, Any]) -> list[Any]:
    return list(fields.values())


def extra_keys(event: Stored) -> list[list[str] | None]:
    """Return vLLM's one entry per block: the adapter on every block, the salt on a prompt's first only."""
    every = [name for name in (event.namespace.lora_name,) if name is not None]
    salt = [salt for salt in (event.namespace.cache_salt,) if salt is not None and event.parent is None]
    first = every + salt
    return [(first if index == 0 else every) or None for index in range(len(event.hashes))]


SHAPES: dict[tuple[str, str], Callable[[Event], Any]] = {
    ("sglang", "map"): sglang_map,
    ("sglang", "array"): sglang_array,
    ("vllm", "map"): vllm_map,
    ("vllm", "array"): vllm_array,
}
