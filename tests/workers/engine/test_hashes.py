from __future__ import annotations

import struct

import pytest

from workers.engine.hashes import (
    bigrams,
    chain,
    pack,
    prior_of,
    signed_hash,
    unpack,
    unsigned_hash,
    whole_hash,
)
from workers.engine.namespace import Namespace
from workers.engine.sequence import sequence_of, token_ids


def _signed(tokens: list[int], page: int, salt: str | None = None) -> list[int]:
    return [signed_hash(digest) for digest in chain(pack(tokens), page * 4, prior_of(salt, None))]


def test_pages_are_chained_as_sglang_chains_them() -> None:
    assert _signed(list(range(1, 9)), 4) == [-3488128144981237669, 5674439469042975057]
    assert _signed([1, 2], 1) == [7470307888890966271, -1634645291211865391]


def test_a_salt_is_the_prior_of_the_first_page() -> None:
    assert _signed([1, 2, 3, 4], 4, "tenantA") == [7374971315066384533]


def test_a_bigram_page_hashes_pairs() -> None:
    assert [signed_hash(digest) for digest in chain(bigrams(pack([1, 2, 3, 4, 5])), 32, b"")] == [
        -638950109823820341
    ]


def test_a_last_page_that_is_not_full_has_no_hash() -> None:
    assert len(_signed(list(range(11)), 4)) == 2


def test_vllm_hashes_are_unsigned_or_the_digest_itself() -> None:
    digest = chain(pack([1, 2]), 8, b"")[0]
    assert unsigned_hash(digest) == int.from_bytes(digest[24:], "big") >= 0
    assert whole_hash(digest) == digest
    assert len(digest) == 32


def test_adapter_and_salt_each_make_a_namespace_of_their_own() -> None:
    names = [(None, None), ("a", None), ("b", None), (None, "a"), ("a", "a")]
    priors = {Namespace(lora_name=lora, cache_salt=salt).prior() for lora, salt in names}
    assert len(priors) == len(names)


def test_a_token_that_is_no_u32_is_refused() -> None:
    with pytest.raises(struct.error):
        pack([-1])


def test_a_sequence_hashes_each_page_once_and_grows_with_its_output() -> None:
    sequence = sequence_of([1, 2, 3, 4, 5], 4)
    assert [signed_hash(digest) for digest in sequence.digests_of(5)] == [-3488128144981237669]
    for token in (6, 7, 8):
        sequence.append(token)
    assert [signed_hash(digest) for digest in sequence.digests_of(8)] == _signed(list(range(1, 9)), 4)
    assert len(sequence.digests_of(7)) == 1
    assert unpack(sequence.data) == list(range(1, 9))


def test_a_bigram_sequence_names_its_pages_by_pairs() -> None:
    sequence = sequence_of([1, 2, 3, 4, 5], 4, bigram=True)
    assert token_ids(sequence.span(0, 1), bigram=True) == [[1, 2], [2, 3], [3, 4], [4, 5]]
    assert [signed_hash(digest) for digest in sequence.digests_of(5)] == [-638950109823820341]
    assert sequence.digests_of(4) == []
