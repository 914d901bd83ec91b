from __future__ import annotations

from typing import Any

from tests.workers.engine.playbook import Playbook, replayed, resident
from workers.engine.dialect import SGLANG, VLLM
from workers.engine.events import Removed, Stored
from workers.engine.namespace import Namespace


def _play(page_size: int = 4, capacity_tokens: int = 64, **changes: Any) -> Playbook:
    play = Playbook(page_size=page_size, capacity_tokens=capacity_tokens, **changes)
    play.settle()
    play.published.clear()
    return play


def test_the_last_prompt_token_never_counts_as_cached() -> None:
    play = _play()
    play.run(range(8))
    assert play.run(range(8)).cached_tokens == 4
    assert play.run(range(9)).cached_tokens == 8


def test_a_match_or_a_split_emits_nothing() -> None:
    play = _play()
    play.run(range(16))
    play.published.clear()
    assert play.run([*range(8), 99]).cached_tokens == 8
    assert play.events() == []


def test_a_new_branch_names_the_last_block_of_the_part_that_exists() -> None:
    play = _play()
    play.run(range(16))
    first = play.events()[-1]
    play.run([*range(8), *range(50, 54)])
    branch = play.events()[-1]
    assert isinstance(first, Stored)
    assert isinstance(branch, Stored)
    assert branch.parent == first.hashes[1]
    assert branch.token_ids == list(range(50, 54))


def test_the_least_recently_used_leaf_goes_first_and_whole() -> None:
    play = _play(capacity_tokens=48)
    old, young = range(100, 117), range(200, 217)
    play.run(old)
    play.run(young)
    play.run(old)
    play.published.clear()
    play.run(range(300, 320))
    removed = [event for event in play.events() if isinstance(event, Removed)]
    assert [len(event.hashes) for event in removed] == [4]
    assert play.run(old).cached_tokens == 16


def test_vllm_gives_up_single_blocks_from_the_end_of_a_prompt() -> None:
    play = _play(capacity_tokens=48, dialect=VLLM)
    old = range(100, 133)
    play.run(old)
    play.published.clear()
    play.run(range(300, 320))
    removed = [event for event in play.events() if isinstance(event, Removed)]
    assert [len(event.hashes) for event in removed] == [1] * len(removed)
    assert play.run(old).cached_tokens == 32 - 4 * len(removed)


def test_blocks_in_use_are_never_evicted() -> None:
    play = _play(capacity_tokens=64)
    held = play.request(range(100, 117), max_new=8)
    play.iterate()
    play.iterate()
    for start in range(200, 600, 100):
        play.request(range(start, start + 20), max_new=1)
    form = play.rank.config.dialect.form
    prompt = {form(digest) for digest in held.sequence.digests_of(16)}
    while held.finish is None:
        assert prompt <= set(resident(play.rank))
        play.iterate()
    play.settle()
    assert any(isinstance(event, Removed) for event in play.events())
    assert replayed(play.events()) == resident(play.rank)


def test_equal_tokens_in_another_namespace_share_nothing() -> None:
    play = _play(capacity_tokens=400)
    play.run(range(9))
    names = [Namespace(cache_salt="a"), Namespace(lora_name="a", lora_id=1), Namespace("a", 1, "a")]
    assert [play.run(range(9), namespace=name).cached_tokens for name in names] == [0, 0, 0]
    assert [play.run(range(9), namespace=name).cached_tokens for name in names] == [8, 8, 8]


def test_pages_that_two_requests_computed_at_once_are_counted_once() -> None:
    play = _play(capacity_tokens=400, dialect=SGLANG)
    for _ in range(3):
        play.request(range(33), max_new=5)
    play.settle()
    cache = play.tree
    assert (cache.private, cache.resident) == (0, len(set(resident(play.rank))))
    assert cache.evictable == cache.resident


def test_bigram_pages_need_one_token_more() -> None:
    play = _play(bigram=True)
    play.run(range(8))
    stored = play.events()[-1]
    assert isinstance(stored, Stored)
    assert stored.token_ids == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert play.run(range(8)).cached_tokens == 4
