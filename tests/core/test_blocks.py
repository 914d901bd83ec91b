"""Block keys: equal for equal prefixes in one namespace, different for everything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.blocks import Namespace, PromptBlocks, _root, block_keys, namespace_root, pack_tokens

BASE = Namespace("m")
TOKENS = st.lists(st.integers(0, 2**32 - 1), max_size=64)


@given(TOKENS, TOKENS, st.integers(1, 8))
def test_keys_are_equal_exactly_as_far_as_the_tokens_are(a: list[int], b: list[int], size: int) -> None:
    root = namespace_root(BASE, size)
    keys = [block_keys(pack_tokens(ids), size, root) for ids in (a, b)]
    common = 0
    while common < min(len(a), len(b)) // size and a[: (common + 1) * size] == b[: (common + 1) * size]:
        common += 1
    for at in range(min(map(len, keys))):
        assert (keys[0][at] == keys[1][at]) == (at < common)


@given(TOKENS, st.integers(1, 8), st.integers(0, 8))
def test_a_chain_continues_from_any_block(ids: list[int], size: int, at: int) -> None:
    root = namespace_root(BASE, size)
    whole = block_keys(pack_tokens(ids), size, root)
    head = block_keys(pack_tokens(ids[: at * size]), size, root)
    tail = block_keys(pack_tokens(ids[at * size :]), size, head[-1] if head else root)
    assert whole[: len(head) + len(tail)] == head + tail


@pytest.mark.parametrize(
    "other",
    [
        namespace_root(Namespace("n"), 4),
        namespace_root(Namespace("m", "a"), 4),
        namespace_root(Namespace("m", None, "a"), 4),
        namespace_root(Namespace("m", "a", "b"), 4),
        namespace_root(Namespace("m", "ab", None), 4),
        namespace_root(BASE, 8),
        namespace_root(BASE, 4, bigram=True),
        namespace_root(Namespace("m", text=True), 4),
        namespace_root(Namespace("m", text=True), 4, bigram=True),
        namespace_root(Namespace("m", "a", text=True), 4),
    ],
)
def test_namespaces_never_share_a_root(other: int) -> None:
    assert other != namespace_root(BASE, 4)


def test_a_bigram_block_covers_the_token_after_it() -> None:
    root = namespace_root(BASE, 4, bigram=True)
    assert len(block_keys(pack_tokens(range(8)), 4, root, bigram=True)) == 1
    assert len(block_keys(pack_tokens(range(9)), 4, root, bigram=True)) == 2
    one, other = ([0, 1, 2, 3, last] for last in (4, 5))
    assert block_keys(pack_tokens(one), 4, root, bigram=True) != block_keys(
        pack_tokens(other), 4, root, bigram=True
    )


def test_the_roots_of_long_names_are_made_anew_and_not_kept() -> None:
    before = _root.cache_info().currsize
    one, other = (Namespace("m", None, "salt" * 1000 + end) for end in "ab")
    assert namespace_root(one, 4) == namespace_root(one, 4) != namespace_root(other, 4)
    assert _root.cache_info().currsize == before


def test_extra_keys_make_a_block_and_all_after_it_different() -> None:
    root = namespace_root(BASE, 2)
    plain = block_keys(pack_tokens(range(6)), 2, root)
    mixed = block_keys(pack_tokens(range(6)), 2, root, extras=[b"", b"image 0", b""])
    assert mixed[0] == plain[0]
    assert mixed[1] != plain[1]
    assert mixed[2] != plain[2]


@pytest.mark.parametrize(("count", "usable"), [(0, 0), (1, 0), (4, 0), (5, 1), (8, 1), (9, 2)])
def test_the_last_prompt_token_never_counts_as_cached(count: int, usable: int) -> None:
    assert PromptBlocks(b"", count, BASE).usable(4) == usable


def test_of_several_prompts_only_what_the_first_holds_counts_as_cached() -> None:
    assert PromptBlocks(pack_tokens(range(9)), 30, BASE, reusable=8).usable(4) == 2
    assert PromptBlocks(pack_tokens(range(9)), 30, BASE, reusable=7).usable(4) == 1


@pytest.mark.parametrize("ids", [[-1], [2**32], ["a"], [1.5], [None]])
def test_ids_out_of_range_or_of_another_type_are_refused(ids: list[int]) -> None:
    with pytest.raises(ValueError):
        pack_tokens(ids)
