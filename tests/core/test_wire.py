"""Payloads of every dialect decode to the same events; what is broken costs one event."""

from __future__ import annotations

import contextlib
import json
from array import array
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.events import Cleared, Removed, Stored
from router.core.wire import MOST_EVENTS, WireError, _decode_any, decode_batch
from tests.core.frames import payload

if TYPE_CHECKING:
    from collections.abc import Callable

    from router.core.events import Batch

encode = msgspec.msgpack.encode
CAPTURES = Path(__file__).parent.parent / "fixtures" / "captures"
GOLDEN = bytes.fromhex(
    "93cb3ff80000000000009387a474797065ab426c6f636b53746f726564ac626c6f636b5f68617368657392fb07b1706172656e"
    "745f626c6f636b5f68617368c0a9746f6b656e5f6964739401020304aa626c6f636b5f73697a6502a76c6f72615f6964c0a66d"
    "656469756da347505583a474797065ac426c6f636b52656d6f766564ac626c6f636b5f6861736865739107a66d656469756daa"
    "4350555f50494e4e454481a474797065b0416c6c426c6f636b73436c656172656400"
)
STORED = {
    "type": "BlockStored",
    "block_hashes": [1],
    "parent_block_hash": None,
    "token_ids": [1, 2],
    "block_size": 2,
    "lora_id": None,
}


def tokens(event: Any) -> list[int]:
    return array("I", event.tokens).tolist()


def only(raw: Any) -> Any:
    batch = decode_batch(payload(raw))
    assert batch.undecodable == 0
    return batch.events[0]


def test_the_golden_payload_decodes() -> None:
    batch = decode_batch(GOLDEN)
    stored, removed, cleared = batch.events
    assert (batch.ts, batch.rank, batch.undecodable) == (1.5, 0, 0)
    assert isinstance(stored, Stored)
    assert (stored.hashes, stored.parent, stored.block_size, stored.tier) == ([-5, 7], None, 2, "GPU")
    assert tokens(stored) == [1, 2, 3, 4]
    assert stored.aligned
    assert removed == Removed([7], "CPU_PINNED", 0)
    assert isinstance(cleared, Cleared)
    assert batch.clears


def test_the_array_shape_decodes_to_the_same_events_as_the_map_shape() -> None:
    array_shape = [
        "BlockStored",
        [1],
        None,
        [1, 2],
        2,
        None,
        "gpu",
        "ad",
        [["ad", "salt"]],
        0,
        "full_attention",
    ]
    map_shape = STORED | {
        "medium": "gpu",
        "lora_name": "ad",
        "extra_keys": [["ad", "salt"]],
        "group_idx": 0,
        "kv_cache_spec_kind": "full_attention",
    }
    assert only(array_shape) == only(map_shape)
    assert only(["BlockRemoved", [3], "cpu", 2]) == Removed([3], "CPU", 2)
    assert only(["AllBlocksCleared"]) == Cleared()


def test_short_arrays_of_old_engines_decode() -> None:
    assert only(["BlockStored", [1], None, [1, 2], 2]).tier == "GPU"
    assert only(["BlockRemoved", [1]]) == Removed([1], "GPU", 0)


def test_an_old_sglang_array_carries_the_salt_in_a_map() -> None:
    event = only(["BlockStored", [1], None, [1, 2], 2, None, "GPU", {"cache_salt": "tenant"}])
    assert (event.cache_salt, event.lora) == ("tenant", None)


def test_bigram_pairs_become_the_tokens_behind_them() -> None:
    event = only(STORED | {"token_ids": [[1, 2], [2, 3]]})
    assert event.bigram
    assert tokens(event) == [1, 2, 3]
    assert event.aligned


@pytest.mark.parametrize(
    ("extra_keys", "lora", "salt", "left"),
    [
        ([["tenant"], None], None, "tenant", None),
        ([["ad"], ["ad"]], "ad", None, None),
        ([["ad", "salt"], ["ad"]], "ad", "salt", None),
        ([None, [["image", 3]]], None, None, [b"", encode([["image", 3]])]),
        ([[["image", 0], "salt"], None], None, "salt", [encode([["image", 0]]), b""]),
    ],
)
def test_extra_keys_split_into_adapter_salt_and_the_rest(
    extra_keys: list[Any], lora: str | None, salt: str | None, left: list[bytes] | None
) -> None:
    raw = STORED | {
        "block_hashes": [1, 2],
        "token_ids": [1, 2, 3, 4],
        "extra_keys": extra_keys,
        "lora_name": lora,
    }
    event = only(raw)
    assert (event.lora, event.cache_salt, event.extras) == (lora, salt, left)


def test_a_lora_id_without_a_name_is_no_namespace_that_a_request_can_name() -> None:
    assert only(STORED | {"lora_id": 3}).lora not in {None, "3", ""}


@pytest.mark.parametrize(
    "bad",
    [
        {"type": "BlockSeen"},
        {"no": "type"},
        ["BlockStored"],
        [],
        7,
        None,
        "BlockStored",
        STORED | {"block_hashes": 3},
        STORED | {"block_hashes": ["a"]},
        STORED | {"block_hashes": [True]},
        STORED | {"token_ids": [-1, 2]},
        STORED | {"token_ids": [2**32, 2]},
        STORED | {"token_ids": ["a", 2]},
        STORED | {"token_ids": [[1, 2], [3]]},
        STORED | {"token_ids": None},
        STORED | {"block_size": "2"},
        STORED | {"parent_block_hash": "x"},
        STORED | {"cache_salt": 3},
        STORED | {"medium": 3},
        STORED | {"extra_keys": "x"},
        STORED | {"extra_keys": ["x"]},
        STORED | {"token_ids": b"\1\0\0\0\2\0\0\0"},
        STORED | {"token_ids": {1: 1, 2: 2}},
        STORED | {"group_idx": "0"},
        STORED | {"lora_id": {}},
        STORED | {"block_hashes": [b"x" * 65]},
        STORED | {"parent_block_hash": b"x" * 65},
        STORED | {"medium": "x" * 65},
        {"type": "BlockRemoved", "block_hashes": [1], "medium": 3},
        {"type": "BlockRemoved", "block_hashes": None},
    ],
    ids=repr,
)
def test_an_undecodable_event_costs_itself_and_not_its_batch(bad: Any) -> None:
    batch = decode_batch(payload(STORED, bad, ["AllBlocksCleared"]))
    assert [type(event) for event in batch.events] == [Stored, Cleared]
    assert batch.undecodable == 1


@pytest.mark.parametrize(
    "bad",
    [
        b"\xa3\xff\xfe\xfd",  # no UTF-8
        b"\x81\x81\x01\x02\x03",  # a map as a key
        b"\xc7\x0c\xff" + b"\xff" * 12,  # no moment of any time
        b"\x91" * 900 + b"\xc0",
    ],
    ids=["text", "key", "time", "depth"],
)
def test_an_event_that_no_decoder_takes_costs_itself_too(bad: bytes) -> None:
    head = b"\x93" + encode(1.5) + b"\x93" + encode(STORED)
    batch = decode_batch(head + bad + encode(["AllBlocksCleared"]) + encode(0))
    assert [type(event) for event in batch.events] == [Stored, Cleared]
    assert (batch.undecodable, batch.rank) == (1, 0)


def test_a_batch_of_more_events_than_any_engine_sends_is_refused_unread() -> None:
    most = decode_batch(payload(*[["AllBlocksCleared"]] * MOST_EVENTS))
    assert (len(most.events), most.undecodable) == (MOST_EVENTS, 0)
    many = b"\x93" + encode(1.5) + b"\xdd" + (1 << 20).to_bytes(4, "big") + b"\xc0" * (1 << 20) + b"\x00"
    with pytest.raises(WireError, match="1048576 events, more than 65535"):
        decode_batch(many)


def test_unknown_fields_and_trailing_elements_are_harmless() -> None:
    batch = decode_batch(payload(STORED | {"new": 1}, extra=("more",)))
    assert len(batch.events) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\xc1",
        b"\x93",
        encode({"a": 1}),
        encode([1.0]),
        encode(["x", [], 0]),
        encode([True, [], 0]),
        encode([float("nan"), [], 0]),
        encode([float("inf"), [["AllBlocksCleared"]], 0]),
        encode([1.0, {}, 0]),
        encode([1.0, [], 0]) + b"more",
        b"\x93\x01\xdd\xff\xff\xff\xff\xc0\x00",
        b"\x91" * 5000,
    ],
)
def test_a_payload_that_is_no_batch_is_refused(raw: bytes) -> None:
    with pytest.raises(WireError):
        decode_batch(raw)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_batch_or_a_wire_error(raw: bytes) -> None:
    with contextlib.suppress(WireError):
        decode_batch(raw)


@given(st.integers(0, len(GOLDEN) - 1), st.integers(0, 255))
def test_any_flipped_byte_gives_a_batch_or_a_wire_error(at: int, byte: int) -> None:
    with contextlib.suppress(WireError):
        decode_batch(GOLDEN[:at] + bytes([byte]) + GOLDEN[at + 1 :])


def json_shape(value: Any) -> Any:
    return bytes.fromhex(value["__bytes__"]) if isinstance(value, dict) else value


def vllm_records() -> list[dict[str, Any]]:
    lines = (CAPTURES / "vllm_0.32.0.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["channel"] == "pub"]


def test_every_frame_of_the_vllm_capture_decodes_to_what_its_engine_said() -> None:
    for record in vllm_records():
        ts, events, rank = record["decoded"][:3]
        batch = decode_batch(bytes.fromhex(record["payload_hex"]))
        assert (batch.ts, batch.rank, batch.undecodable) == (ts, rank, 0)
        assert len(batch.events) == len(events)
        for event, said in zip(batch.events, events, strict=True):
            check_against(event, said)


def check_against(event: Any, said: dict[str, Any]) -> None:
    if isinstance(event, Cleared):
        assert said["type"] == "AllBlocksCleared"
        return
    assert event.hashes == [json_shape(block) for block in said["block_hashes"]]
    assert event.tier == said["medium"]
    if isinstance(event, Stored):
        assert said["type"] == "BlockStored"
        assert event.parent == json_shape(said["parent_block_hash"])
        assert tokens(event) == said["token_ids"]
        assert event.lora == said["lora_name"]
        assert event.kind == said["kv_cache_spec_kind"]
        assert event.aligned


@pytest.mark.parametrize("page", [1, 16])
def test_every_frame_of_the_sglang_captures_decodes(page: int) -> None:
    capture = json.loads((CAPTURES / f"sglang_0.5.23_page{page}.json").read_text())
    frames = [frame for step in capture["steps"] for frame in step["frames"]]
    frames += [frame[1:] for frame in capture["replay_from_0"]]
    batches = [decode_batch(bytes.fromhex(frame[2])) for frame in frames if frame[1] != "ff" * 8]
    assert len(batches) > 20
    assert all(batch.undecodable == 0 for batch in batches)
    assert all(event.aligned for batch in batches for event in batch.events if isinstance(event, Stored))


FIELD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.lists(st.one_of(st.integers(0, 9), st.text(max_size=2)), max_size=3),
    st.floats(0, 9),
)
PLAIN: dict[str, Any] = {
    "block_hashes": [1, -2, b"x"],
    "parent_block_hash": None,
    "token_ids": [1, 2, 3, 4, 5, 6],
    "block_size": 2,
    "lora_id": None,
    "lora_name": None,
    "medium": "gpu",
    "extra_keys": [["salt"], None, None],
    "group_idx": 0,
    "kv_cache_spec_kind": None,
    "cache_salt": None,
}
CHANGES = st.dictionaries(st.sampled_from([*PLAIN, "other"]), FIELD, max_size=3)
TAGS = st.sampled_from(["BlockStored", "BlockRemoved", "AllBlocksCleared", "Other", None])


@given(
    st.lists(
        st.tuples(TAGS, st.dictionaries(st.sampled_from([*PLAIN, "other"]), FIELD, max_size=3)), max_size=3
    ),
    st.one_of(st.just(1.5), FIELD),
    st.one_of(st.just(0), FIELD),
)
def test_usual_batches_are_read_as_any_other(
    events: list[tuple[str | None, dict[str, Any]]], ts: Any, rank: Any
) -> None:
    maps: list[dict[str, Any]] = [{"type": tag, **PLAIN, **changes} for tag, changes in events]
    body = encode([ts, maps, rank])

    def outcome(decode: Callable[[bytes], Batch]) -> Batch | str:
        try:
            return decode(body)
        except WireError as error:
            return str(error)

    assert outcome(decode_batch) == outcome(_decode_any)
