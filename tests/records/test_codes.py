"""What a record shows of prompts can be found by nobody: each session's secret is its own, and long."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

from router.core.blocks import pack_tokens
from router.core.cost import Weights
from router.core.events import Batch, Stored
from router.records.codes import CODE_BYTES, Codes
from router.records.entries import Live, Store
from router.records.format import Cut, read
from router.records.items import RawLive
from router.records.recorder import Recorder
from tests.records.made import SIZE, nothing, ranked

if TYPE_CHECKING:
    from pathlib import Path

TOKENS = pack_tokens(range(2 * SIZE))
EVENT = Stored([1, 2], 3, TOKENS, SIZE, False, "GPU", None, "tenant", None, 0, None)


def recorded(directory: Path) -> Store:
    """Return what a session of its own has kept of an event."""
    recorder = Recorder(directory, 2**24, "kv", Weights(), 1 << 20, 1000)
    recorder.put(ranked(0))
    recorder.put(RawLive(1.0, 0, 0, 100, True, Batch(1.0, [EVENT], None), 100))
    recorder.close()
    (path,) = directory.iterdir()
    blocks = [each for each in read(memoryview(path.read_bytes()), path.name) if not isinstance(each, Cut)]
    (found,) = (entry for each in blocks for entry in each if isinstance(entry, Live))
    (event,) = found.batch.events
    assert isinstance(event, Store)
    return event


def test_two_records_of_the_same_prompt_have_no_code_in_common(tmp_path: Path) -> None:
    first, second = (recorded(tmp_path / name) for name in "ab")
    for one, other in ((first.blocks, second.blocks), (first.hashes, second.hashes)):
        assert len(one) == len(other) == 2 * CODE_BYTES
        assert not _codes(one) & _codes(other)
    assert first.parent != second.parent
    assert first.salt != second.salt


def _codes(codes: bytes) -> set[bytes]:
    return {codes[at : at + CODE_BYTES] for at in range(0, len(codes), CODE_BYTES)}


def test_secrets_are_too_many_to_be_tried() -> None:
    """A thousand of two bytes would hardly all differ."""
    sessions = [Codes(nothing) for _ in range(1000)]
    assert len({codes.hash(1) for codes in sessions}) == len(sessions)


def test_a_code_depends_on_the_secret_and_is_no_hash_that_anybody_can_make() -> None:
    made = Codes(nothing).blocks(TOKENS, SIZE, bigram=False)
    first = TOKENS[: len(TOKENS) // 2]
    keys = (b"", bytes(32), b"secret")
    guesses = {
        blake2b(first, digest_size=CODE_BYTES, key=key, person=use).digest()
        for key in keys
        for use in (b"", b"tokens")
    }
    known = Codes(nothing, b"secret").blocks(TOKENS, SIZE, bigram=False)
    assert known[:CODE_BYTES] in guesses
    assert made[:CODE_BYTES] not in guesses
