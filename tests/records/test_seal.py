"""A view that is fed with what was recorded becomes what the view fed by the engine is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.blocks import Namespace, PromptBlocks, block_keys, namespace_root, pack_tokens
from router.core.events import Batch, Cleared, Removed, Stored
from router.core.index import Index
from router.core.view import View
from router.records.codes import as_tokens
from router.records.seal import opened, prompt_blocks, salted, sealed
from tests.records.made import CODES, SIZE, batch, stored

if TYPE_CHECKING:
    from router.core.events import Event

Pair = tuple[View, Index]


def view() -> Pair:
    index = Index(1 << 16)
    return View(index, "m", block_size=None), index


def reopened(given_batch: Batch) -> Batch:
    events: list[Event] = []
    for event in sealed(given_batch, CODES).events:
        name = type(event).__name__
        if name == "Store":
            events.append(opened(event))  # type: ignore[arg-type]  # by its name
        else:
            events.append(Cleared())
    return Batch(given_batch.ts, events, None)


def depth(pair: Pair, tokens: list[int], *, coded: bool, bigram: bool = False, size: int = SIZE) -> int:
    """Return how many blocks of a prompt are held."""
    prompt = PromptBlocks(pack_tokens(tokens), len(tokens), Namespace("m"))
    keys = prompt.keys(size, bigram=bigram)
    if coded:
        (blocks,) = prompt_blocks(prompt, [(size, bigram)], CODES)
        root = namespace_root(Namespace("m", None, salted(None, bigram=bigram)), size)
        keys = block_keys(as_tokens(blocks.codes, size), size, root)
    return pair[1].match(keys).held.get(pair[0].slot, 0)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.lists(st.integers(0, 3), max_size=40))
def test_a_prompt_matches_as_far_as_it_did(held: list[int], asked: list[int]) -> None:
    live_view, again = view(), view()
    count = len(held) // SIZE
    event = stored(range(1, count + 1), held[: count * SIZE])
    live_view[0].apply(batch(event))
    again[0].apply(reopened(batch(event)))
    assert depth(again, asked, coded=True) == depth(live_view, asked, coded=False)
    assert again[0].blocks() == live_view[0].blocks()


@pytest.mark.parametrize("size", [1, 2, 3, 4, 16])
def test_blocks_of_any_size_match_as_they_did(size: int) -> None:
    tokens = [index % 7 for index in range(3 * size + 1)]
    live_view, again = view(), view()
    packed = pack_tokens(tokens[: 2 * size])
    event = Stored([1, 2], None, packed, size, False, "GPU", None, None, None, 0, None)
    live_view[0].apply(batch(event))
    again[0].apply(reopened(batch(event)))
    for asked in (tokens, [*tokens[:-1], 9], [9, *tokens[1:]], tokens[:size] + tokens[:size]):
        found = depth(again, asked, coded=True, size=size)
        assert found == depth(live_view, asked, coded=False, size=size)


@pytest.mark.parametrize("bigram", [False, True])
def test_blocks_of_neighbour_pairs_match_as_they_did(*, bigram: bool) -> None:
    tokens = [7, 8, 9, 10, 11, 12, 13, 14, 15]
    live_view, again = view(), view()
    event = stored([1, 2], tokens if bigram else tokens[:8], bigram=bigram)
    live_view[0].apply(batch(event))
    again[0].apply(reopened(batch(event)))
    for asked in (tokens, [*tokens[:8], 99], [*tokens[:4], 99, *tokens[5:]]):
        assert depth(again, asked, coded=True, bigram=bigram) == depth(
            live_view, asked, coded=False, bigram=bigram
        )


def test_an_event_whose_tokens_do_not_fit_stays_one() -> None:
    event = stored([1, 2], range(7))
    assert not event.aligned
    (again,) = reopened(batch(event)).events
    assert isinstance(again, Stored)
    assert again.tokens
    assert not again.aligned


def test_blocks_with_images_in_them_are_others() -> None:
    plain = stored([1], range(4))
    image = Stored(plain.hashes, None, plain.tokens, SIZE, False, "GPU", None, None, [b"image"], 0, None)
    first, second = (sealed(batch(event), CODES).events[0] for event in (plain, image))
    assert first.blocks != second.blocks  # type: ignore[union-attr]  # both are stores


def test_nothing_of_tokens_hashes_or_salts_is_kept() -> None:
    event = Stored([77], 76, pack_tokens([1001] * 4), SIZE, False, "GPU", None, "tenant", None, 0, None)
    said = repr(sealed(Batch(1.0, [event, Removed([77], "GPU", 0)], None), CODES))
    assert not any(word in said for word in ("1001", "77,", "[77", "76,", "tenant"))
    assert repr(pack_tokens([1001] * 4))[2:10] not in said
