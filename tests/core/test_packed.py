"""A packed map is a map."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from router.core.packed import Packed, Words, fingerprint, fingerprints

if TYPE_CHECKING:
    from numpy.typing import NDArray

OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["claim", "put", "discard", "tidy"]), st.integers(-30, 30), st.integers(1, 99)),
    max_size=200,
)


@given(OPERATIONS)
def test_it_does_what_a_dict_does(operations: list[tuple[str, int, int]]) -> None:
    packed, expected = Packed(), dict[int, int]()
    for name, block, value in operations:
        key = fingerprint(block)
        if name == "claim":
            assert packed.claim(key, value) == expected.setdefault(key, value)
        elif name == "put":
            packed.put(key, value)
            expected[key] = value
        elif name == "discard":
            packed.discard(key)
            expected.pop(key, None)
        else:
            packed.tidy(0)
        assert len(packed) == len(expected)
    for block in range(-30, 31):
        assert packed.get(fingerprint(block)) == expected.get(fingerprint(block), 0)


def test_it_grows_to_many_shards_and_is_small_again_when_they_are_empty() -> None:
    rng = Random(1)
    packed = Packed()
    entries = {rng.getrandbits(64) | 2: rng.getrandbits(64) | 1 for _ in range(50_000)}
    keys, values = list(entries), list(entries.values())
    for at in range(0, len(keys), 100):
        assert packed.claim_all(keys[at : at + 100], values[at : at + 100]) == 100
    assert all(packed.get(key) == value for key, value in entries.items())
    assert packed.nbytes / len(entries) < 54
    for key in keys:
        packed.discard(key)
    at, passes = 0, 0
    while passes < 20:
        at = packed.tidy(at)
        passes += not at
    assert (len(packed), packed.nbytes) == (0, 512)
    assert not any(packed.get(key) for key in keys[::100])


def test_claiming_many_stops_at_the_first_that_has_another_value() -> None:
    packed = Packed()
    packed.put(7, 70)
    assert packed.claim_all([5, 7, 9], [50, 71, 90]) == 1
    assert (packed.get(5), packed.get(7), packed.get(9)) == (50, 70, 0)
    assert packed.claim_all([5, 7, 9], [50, 71, 90], 2) == 3
    assert packed.get(9) == 90


def test_stale_entries_go_when_a_shard_is_rebuilt() -> None:
    def stale(_: Words, values: Words) -> NDArray[np.bool_]:
        even: NDArray[np.bool_] = values % np.uint64(2) == 0
        return even

    packed = Packed(stale)
    for key in range(2, 22):
        packed.put(fingerprint(key), key)
    packed.tidy(0)
    assert len(packed) == 10


def test_a_map_that_nobody_uses_is_let_go_of_in_portions() -> None:
    packed = Packed()
    for key in range(20_000):
        packed.put(fingerprint(key), 1)
    steps = 0
    while packed.shrink(1):
        steps += 1
    assert steps > 3


@given(st.lists(st.one_of(st.integers(-(2**63), 2**64 - 1), st.binary(max_size=40))))
def test_the_keys_of_many_are_the_keys_of_each(blocks: list[int | bytes]) -> None:
    assert fingerprints(blocks) == [fingerprint(block) for block in blocks]
