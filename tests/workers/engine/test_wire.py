from __future__ import annotations

from typing import Any

import msgspec
import pytest

from workers.engine.events import Batch, Cleared, Event, Removed, Stored
from workers.engine.namespace import Namespace
from workers.engine.wire import SHAPES, encode, sglang_map

GOLDEN = (
    "93cb3ff80000000000009387a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392fb07b1706172"
    "656e745f626c6f636b5f68617368c0a9746f6b656e5f696473940102"
    "0304aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d656469756da347505583a474797065ac426c6f636b52656d"
    "6f766564ac626c6f636b5f6861736865739107a66d656469756daa4350555f50494e4e454481a474797065b0416c6c426c"
    "6f636b73436c656172656400"
)
ADAPTER = Namespace(lora_name="ad", lora_id=1, cache_salt="salt")


def _event(engine: str, shape: str, event: Event) -> Any:
    payload = encode(Batch(2.0, [event]), 3, SHAPES[engine, shape])
    ts, events, rank = msgspec.msgpack.decode(payload)
    assert (ts, rank) == (2.0, 3)
    return events[0]


def test_the_golden_payload_of_a_real_engine_byte_for_byte() -> None:
    events: list[Event] = [Stored([-5, 7], None, [1, 2, 3, 4], 2), Removed([7], "CPU_PINNED"), Cleared()]
    assert encode(Batch(1.5, events), 0, sglang_map).hex() == GOLDEN


def test_sglang_adds_a_salt_only_when_there_is_one() -> None:
    plain = _event("sglang", "map", Stored([1], None, [5], 1))
    salted = _event("sglang", "map", Stored([1], None, [5], 1, namespace=Namespace(cache_salt="s")))
    assert list(plain) == [
        "type",
        "block_hashes",
        "parent_block_hash",
        "token_ids",
        "block_size",
        "lora_id",
        "medium",
    ]
    assert salted == plain | {"cache_salt": "s"}


def test_a_vllm_event_has_the_fields_of_a_real_one_in_their_order() -> None:
    event = _event("vllm", "map", Stored([1, 2], None, [5, 6], 1, namespace=ADAPTER))
    assert list(event) == [
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
    ]
    assert (event["lora_id"], event["lora_name"], event["group_idx"]) == (1, "ad", 0)
    assert event["kv_cache_spec_kind"] == "full_attention"


@pytest.mark.parametrize(
    ("namespace", "parent", "keys"),
    [
        (Namespace(), None, [None, None]),
        (Namespace(cache_salt="t"), None, [["t"], None]),
        (Namespace(cache_salt="t"), 9, [None, None]),
        (Namespace(lora_name="ad"), None, [["ad"], ["ad"]]),
        (ADAPTER, None, [["ad", "salt"], ["ad"]]),
    ],
)
def test_extra_keys_name_the_adapter_on_every_block_and_the_salt_on_the_first(
    namespace: Namespace, parent: int | None, keys: list[list[str] | None]
) -> None:
    event = _event("vllm", "map", Stored([1, 2], parent, [5, 6], 1, namespace=namespace))
    assert event["extra_keys"] == keys


def test_vllm_hashes_may_be_bytes() -> None:
    event = _event("vllm", "map", Stored([b"\1" * 32], b"\2" * 32, [5], 1))
    assert event["block_hashes"] == [b"\1" * 32]
    assert event["parent_block_hash"] == b"\2" * 32
    removed = _event("vllm", "map", Removed([b"\1" * 32]))
    assert list(removed) == ["type", "block_hashes", "medium", "group_idx"]


def test_the_older_shape_is_an_array_with_the_tag_first() -> None:
    assert _event("sglang", "array", Cleared()) == ["AllBlocksCleared"]
    assert _event("sglang", "array", Removed([7])) == ["BlockRemoved", [7], "GPU"]
    stored = Stored([1], 9, [5], 1, namespace=Namespace(cache_salt="s"))
    assert _event("sglang", "array", stored) == [
        "BlockStored",
        [1],
        9,
        [5],
        1,
        None,
        "GPU",
        {"cache_salt": "s"},
    ]


def test_the_older_vllm_array_ends_with_group_kind_and_window() -> None:
    stored = _event("vllm", "array", Stored([1], None, [5], 1, namespace=ADAPTER))
    assert stored[6:] == ["GPU", "ad", [["ad", "salt"]], 0, "full_attention", None]
    assert _event("vllm", "array", Removed([7])) == ["BlockRemoved", [7], "GPU", 0]


def test_a_bigram_event_carries_pairs() -> None:
    assert _event("sglang", "map", Stored([1], None, [[5, 6], [6, 7]], 2))["token_ids"] == [[5, 6], [6, 7]]
