from __future__ import annotations

import zlib
from struct import pack
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.records import entries
from router.records.format import MAGIC, Cut, RecordError, block, packed, read
from tests.records.made import CODES, batch, live, part, prompt, ranked, session, stored

if TYPE_CHECKING:
    from router.records.entries import Entry

BLOCKS: list[list[Entry]] = [
    [session(), ranked(0)],
    [live(0, 0, batch(stored([1, 2], range(8)))), prompt(0, range(20))],
    [entries.Sent(1.5, 0, 0, -1, False), entries.Ended(2.0, 0, 200, "")],
]
WHOLE = part(*BLOCKS)


def found(data: bytes) -> tuple[list[Entry], Cut | None]:
    cut = None
    entries_read: list[Entry] = []
    for each in read(memoryview(data), "x.kvr"):
        if isinstance(each, Cut):
            cut = each
        else:
            entries_read += each
    return entries_read, cut


def refused(data: bytes) -> tuple[list[Entry], str]:
    """Return what can be read, and what is said of the rest."""
    entries_read: list[Entry] = []
    try:
        for each in read(memoryview(data), "x.kvr"):
            entries_read += [] if isinstance(each, Cut) else each
    except RecordError as error:
        return entries_read, error.message
    return entries_read, ""


def test_what_is_written_is_read_again() -> None:
    assert found(WHOLE) == ([entry for each in BLOCKS for entry in each], None)


@given(st.integers(0, len(WHOLE)))
def test_a_cut_part_is_read_up_to_the_cut(length: int) -> None:
    read_entries, cut = found(WHOLE[:length])
    ends = [len(part(*BLOCKS[:count])) for count in range(len(BLOCKS) + 1)]
    blocks = max([count for count, end in enumerate(ends) if end <= length], default=0)
    assert read_entries == [entry for each in BLOCKS[:blocks] for entry in each]
    assert (cut is None) == (length in ends or length < len(MAGIC))


@given(st.integers(0, len(WHOLE) - 1), st.integers(1, 255))
def test_no_changed_byte_is_taken_for_another_record(place: int, change: int) -> None:
    data = bytearray(WHOLE)
    data[place] ^= change
    read_entries, why = refused(bytes(data))
    assert "\n" not in why
    assert read_entries == [entry for each in BLOCKS for entry in each][: len(read_entries)]


@given(st.binary(max_size=200))
def test_bytes_of_others_are_one_clear_line(data: bytes) -> None:
    for start in (b"", MAGIC):
        read_entries, why = refused(start + data)
        assert not read_entries
        assert not why or why.startswith("x.kvr: ")


@given(st.binary(max_size=200))
def test_hostile_entries_are_one_clear_line(data: bytes) -> None:
    body = zlib.compress(data)
    head = pack(">II", len(body), zlib.crc32(body))
    _, why = refused(MAGIC + head + body)
    assert not why or why.startswith("x.kvr: no entries at byte 19")


def test_another_version_is_named() -> None:
    with pytest.raises(RecordError) as raised:
        found(b"kv-router record 7\n" + WHOLE[len(MAGIC) :])
    assert raised.value.message == "x.kvr: format 7, this kv-router reads format 1"


def test_a_block_that_unpacks_without_end_is_refused() -> None:
    with pytest.raises(RecordError):
        found(MAGIC + block(bytes(2**26 + 1)))


def test_an_entry_of_a_later_minor_change_is_read() -> None:
    longer = msgspec.msgpack.encode([[3, 7, "a field of a later release"]])
    assert found(MAGIC + block(longer)) == ([entries.Gone(7)], None)
    assert packed([entries.Gone(7)]) == msgspec.msgpack.encode([[3, 7]])


def test_codes_tell_equal_from_unequal_and_nothing_else() -> None:
    assert CODES.hash(5) == CODES.hash(5) != CODES.hash(6)
    assert CODES.hash(5) != CODES.hash((5).to_bytes(8, "little"))
    assert CODES.salt("tenant") == CODES.salt("tenant")
    assert "tenant" not in str(CODES.salt("tenant"))
    assert CODES.salt(None) is None
