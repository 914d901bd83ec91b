from __future__ import annotations

from typing import Any

import pytest

from tests.workers.engine.playbook import Playbook, held_tiers, replayed_tiers
from workers.engine.events import GPU, HOST, Cleared, Removed, Stored
from workers.engine.hicache import TierConfig
from workers.engine.storage import Storage
from workers.engine.timing import Profile
from workers.engine.transfers import Line

FIRST, SECOND, THIRD = range(100, 133), range(200, 233), range(300, 333)


def _play(*, capacity_tokens: int = 48, page_size: int = 4, loop: str = "normal", **tiers: Any) -> Playbook:
    play = Playbook(
        loop=loop,
        page_size=page_size,
        capacity_tokens=capacity_tokens,
        tiers=TierConfig(**({"host": 4.0} | tiers)),
        profile=Profile(0.002, 20e-6, 0.001),
    )
    play.settle()
    play.published.clear()
    return play


def _by_medium(play: Playbook) -> list[tuple[str, str, int]]:
    return [
        (type(event).__name__, event.medium, len(event.hashes))
        for event in play.events()
        if not isinstance(event, Cleared)
    ]


def test_a_node_goes_to_the_host_and_is_announced_there_when_the_copy_has_ended() -> None:
    play = _play(host_bandwidth=1e6)
    play.run(FIRST)
    stored = [event for event in play.events() if isinstance(event, Stored)]
    assert [event.medium for event in stored] == [GPU, HOST]
    assert stored[0].hashes == stored[1].hashes
    assert stored[0].token_ids == stored[1].token_ids == list(FIRST)[:32]
    assert play.published[-1].ts - play.published[0].ts >= 32 * 131_072 / 1e6


def test_a_node_is_written_through_once_it_has_been_stored_often_enough() -> None:
    play = _play(write_through=2)
    play.run(FIRST)
    assert _by_medium(play) == [("Stored", GPU, 8)]
    play.run(FIRST)
    assert _by_medium(play) == [("Stored", GPU, 8), ("Stored", HOST, 8)]


def test_a_node_with_a_copy_is_demoted_and_one_without_is_gone() -> None:
    copied, plain = _play(), _play(write_through=9)
    for play in (copied, plain):
        play.run(FIRST)
        play.published.clear()
        play.run(SECOND)
        assert ("Removed", GPU, 8) in _by_medium(play)
    assert len(held_tiers(copied.rank)[HOST]) == 16
    assert HOST not in held_tiers(plain.rank)


def test_a_prompt_on_the_host_is_loaded_back_and_counts_as_cached() -> None:
    play = _play()
    play.run(FIRST)
    play.run(SECOND)
    play.published.clear()
    assert play.run(FIRST).cached_tokens == 32
    assert _by_medium(play)[:2] == [("Removed", GPU, 8), ("Stored", GPU, 8)]


def test_the_first_token_waits_for_what_is_loaded_back() -> None:
    play = _play(host_bandwidth=1e7)
    play.run(FIRST)
    play.run(SECOND)
    before = play.now
    request = play.request(FIRST)
    play.until(lambda: request.finish)
    assert play.now - before == pytest.approx(32 * 131_072 / 1e7)


def test_too_few_tokens_are_computed_rather_than_loaded_and_are_stored_again() -> None:
    play = _play(load_back=64)
    play.run(FIRST)
    play.run(SECOND)
    play.published.clear()
    assert play.run(FIRST).cached_tokens == 0
    assert ("Stored", GPU, 8) in _by_medium(play)
    assert replayed_tiers([*play.events()])[GPU] == held_tiers(play.rank)[GPU]


def test_a_full_host_gives_up_what_was_used_least_recently() -> None:
    play = _play(host=1.5)
    for prompt in (FIRST, SECOND):
        play.run(prompt)
    play.published.clear()
    play.run(THIRD)
    removed = [event for event in play.events() if isinstance(event, Removed) and event.medium == HOST]
    assert [len(event.hashes) for event in removed] == [8]
    assert play.run(SECOND).cached_tokens == 32
    assert play.run(FIRST).cached_tokens == 0


def test_what_has_reached_the_host_is_backed_up_and_no_event_says_so() -> None:
    play = _play(storage=10.0)
    play.run(FIRST)
    assert len(play.hicache.storage) == 8
    assert {medium for _, medium, _ in _by_medium(play)} == {GPU, HOST}


def test_a_long_prompt_is_fetched_from_storage_to_the_host_before_it_is_scheduled() -> None:
    play = _play(capacity_tokens=1000, storage=10.0)
    prompt = range(5000, 5301)
    play.run(prompt)
    assert play.flush()
    play.settle()
    play.published.clear()
    assert play.run(prompt).cached_tokens == 300
    assert _by_medium(play)[:2] == [("Stored", HOST, 75), ("Stored", GPU, 75)]


@pytest.mark.parametrize(("tokens", "looks"), [(255, 0), (256, 1)])
def test_only_a_prompt_of_256_uncached_tokens_is_looked_for(tokens: int, looks: int) -> None:
    play = _play(capacity_tokens=1000, storage=10.0, lookup=5.0)
    play.request(range(5000, 5000 + tokens))
    assert len(play.hicache.prefetches) == looks


def test_others_overtake_a_request_that_waits_for_storage() -> None:
    play = _play(capacity_tokens=1000, storage=10.0, lookup=5.0)
    slow = play.request(range(5000, 5300))
    quick = play.request(range(9))
    play.until(lambda: quick.finish)
    assert slow.finish is None
    play.settle()
    assert slow.finish == "length"


def test_a_flush_empties_device_and_host_but_not_storage() -> None:
    play = _play(capacity_tokens=1000, storage=10.0)
    play.run(FIRST)
    assert play.flush()
    assert held_tiers(play.rank) == {}
    assert play.tree.host_used == 0
    assert len(play.hicache.storage) == 8


def test_a_copy_under_way_is_not_idle_and_holds_up_a_flush() -> None:
    play = _play(host_bandwidth=1e6)
    request = play.request(FIRST)
    play.until(lambda: request.finish)
    play.iterate()
    assert not play.rank.idle(ignore_waiting=True)
    assert not play.flush()
    play.settle()
    assert play.flush()


def test_a_node_split_while_it_is_copied_is_announced_in_its_parts() -> None:
    play = _play(capacity_tokens=400, host_bandwidth=1e6)
    first = play.request(FIRST)
    play.until(lambda: first.finish)
    branch = play.request([*list(FIRST)[:16], *range(900, 917)])
    play.until(lambda: branch.finish)
    play.settle()
    assert replayed_tiers(play.events()) == held_tiers(play.rank)
    assert len(held_tiers(play.rank)[HOST]) == 12


def test_a_line_carries_one_copy_after_another() -> None:
    line: Line[str] = Line()
    assert line.start("a", 2.0, 10.0) == 12.0
    assert line.start("b", 1.0, 11.0) == 13.0
    line.advance(12.5)
    assert (line.reap(), len(line), line.next) == (["a"], 1, 13.0)
    line.clear()
    assert (len(line), line.next) == (0, None)


def test_storage_keeps_what_was_used_last() -> None:
    storage = Storage(2)
    storage.put([b"a", b"b"])
    assert storage.leading([b"a", b"x", b"b"]) == 1
    storage.put([b"c"])
    assert storage.leading([b"b"]) == 0
    assert storage.leading([b"a", b"c"]) == 2
