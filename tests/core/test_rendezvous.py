from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from xxhash import xxh3_64_intdigest

from router.core.rendezvous import Rendezvous

if TYPE_CHECKING:
    from collections.abc import Sequence

WORD = (1 << 64) - 1
KEYS = st.integers(0, WORD)
NAMES = st.lists(st.binary(max_size=20), min_size=1, max_size=40, unique=True)


def mixed(value: int) -> int:
    """MurmurHash3's finalizer for 64 bits, in whole numbers."""
    for factor in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        value ^= value >> 33
        value = value * factor & WORD
    return value ^ value >> 33


def home(names: Sequence[bytes], key: int) -> bytes:
    return names[int(Rendezvous(names).places(key).argmin())]


@given(NAMES, KEYS)
def test_a_place_depends_on_the_key_and_the_name_alone(names: list[bytes], key: int) -> None:
    places = [mixed(xxh3_64_intdigest(name) ^ key) / 2**64 for name in names]
    assert Rendezvous(names).places(key).tolist() == places
    assert all(0.0 <= place <= 1.0 for place in places)


@given(NAMES, KEYS, st.data())
def test_only_the_keys_of_a_rank_that_goes_move(names: list[bytes], key: int, data: st.DataObject) -> None:
    gone = data.draw(st.sampled_from(names))
    left = [name for name in names if name != gone]
    if left and home(names, key) != gone:
        assert home(left, key) == home(names, key)


def test_keys_spread_evenly() -> None:
    names = [b"http://10.0.0.%d:30000" % number for number in range(8)]
    homes = Counter(home(names, xxh3_64_intdigest(b"%d" % key)) for key in range(8000))
    assert len(homes) == 8
    assert all(880 < count < 1120 for count in homes.values())  # four times the deviation of chance
