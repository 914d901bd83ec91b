"""vLLM's memory: single blocks, copies of one hash, an offload connector."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.workers.engine.playbook import Playbook, held_tiers, replayed_tiers
from workers.engine.dialect import VLLM
from workers.engine.events import GPU, OFFLOADED, Removed, Stored
from workers.engine.hicache import TierConfig

PROMPT = range(100, 117)


def _play(capacity_tokens: int = 400, **changes: Any) -> Playbook:
    return Playbook(dialect=VLLM, page_size=4, capacity_tokens=capacity_tokens, **changes)


def _counts(play: Playbook, kind: type[Stored | Removed]) -> Counter[int | bytes]:
    events = [event for event in play.events() if isinstance(event, kind)]
    return Counter(block for event in events for block in event.hashes)


def test_three_prompts_decoded_at_once_store_one_hash_three_times_and_remove_it_three_times() -> None:
    play = _play(capacity_tokens=64)
    requests = [play.request(range(2), max_new=9) for _ in range(3)]
    play.settle()
    assert {request.finish for request in requests} == {"length"}
    assert set(_counts(play, Stored).values()) == {3}
    play.run(range(500, 562))
    assert _counts(play, Removed) == _counts(play, Stored) - Counter(held_tiers(play.rank)[GPU])
    assert set(_counts(play, Removed).values()) == {3}


def test_prompts_scheduled_in_one_step_share_what_the_first_is_to_fill() -> None:
    play = _play()
    requests = [play.request(PROMPT, max_new=2) for _ in range(3)]
    play.settle()
    assert [request.cached_tokens for request in requests] == [0, 16, 16]
    assert set(_counts(play, Stored).values()) == {1}


def test_a_prompt_that_ignores_the_cache_is_computed_and_stored_again() -> None:
    play = _play()
    play.run(PROMPT)
    assert play.run(PROMPT, ignores_cache=True).cached_tokens == 0
    assert set(_counts(play, Stored).values()) == {2}
    assert replayed_tiers(play.events()) == held_tiers(play.rank)


def test_a_hit_is_announced_again_only_when_asked_for() -> None:
    play = _play()
    play.run(PROMPT)
    play.published.clear()
    play.run(PROMPT)
    assert play.events() == []
    play.run(PROMPT, reports_hits=True)
    [again] = play.events()
    assert isinstance(again, Stored)
    assert (len(again.hashes), again.parent, again.token_ids) == (4, None, list(PROMPT)[:16])
    assert len(held_tiers(play.rank)[GPU]) == 4


def test_an_event_names_the_session_of_its_request() -> None:
    play = _play()
    play.run(PROMPT, session_id="mine")
    assert [event.session_id for event in play.events() if isinstance(event, Stored)] == ["mine"]


def test_a_block_without_a_hash_is_taken_again_before_one_that_has_one() -> None:
    play = _play(capacity_tokens=24)
    play.run(range(6))
    play.run(range(100, 118))
    assert not _counts(play, Removed)
    play.run(range(200, 209))
    assert sum(_counts(play, Removed).values()) == 2


def test_what_is_offloaded_is_announced_without_tokens_in_a_later_step() -> None:
    play = _play(tiers=TierConfig(host=4.0))
    play.run(PROMPT)
    assert OFFLOADED not in replayed_tiers(play.events())
    play.run([1])
    placeholder = next(event for event in play.events() if isinstance(event, Stored) and not event.token_ids)
    assert (placeholder.medium, placeholder.block_size, placeholder.parent) == (OFFLOADED, 0, None)
    assert replayed_tiers(play.events()) == held_tiers(play.rank)


def test_an_offloaded_prompt_is_loaded_and_counts_as_cached() -> None:
    play = _play(capacity_tokens=32, tiers=TierConfig(host=4.0))
    play.run(PROMPT)
    play.run(range(500, 530))
    play.published.clear()
    assert play.run(PROMPT).cached_tokens == 16
    assert [
        len(event.hashes) for event in play.events() if isinstance(event, Stored) and event.token_ids
    ] == [4]


def test_the_oldest_offloaded_blocks_go_first() -> None:
    play = _play(capacity_tokens=32, tiers=TierConfig(host=1.0))
    for start in (100, 200, 300, 400):
        play.run(range(start, start + 17))
    removed = [event for event in play.events() if isinstance(event, Removed) and event.medium == OFFLOADED]
    assert sum(len(event.hashes) for event in removed) >= 4
    assert replayed_tiers([*play.events(), *play.rank.events.pending]) == held_tiers(play.rank)
