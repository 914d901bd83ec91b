"""Decoding that runs out of memory: who is taken back, what of it stays, and what is learnt from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.engine.playbook import Playbook, held_tiers, replayed_tiers, resident
from workers.engine.dialect import SGLANG, VLLM
from workers.engine.events import GPU, Removed, Stored
from workers.engine.pressure import INITIAL_RATIO, LEAST_RATIO

if TYPE_CHECKING:
    from workers.engine.request import Request

WHOLE = ["normal", "overlap", "mlx-overlap"]
EVERY = [*WHOLE, "decode", "decode-overlap"]


def _play(loop: str = "normal", capacity_tokens: int = 256, page_size: int = 4, **changes: Any) -> Playbook:
    return Playbook(loop=loop, page_size=page_size, capacity_tokens=capacity_tokens, **changes)


def _crowd(play: Playbook, count: int = 4, tokens: int = 20, max_new: int = 60) -> list[Request]:
    """Ask for more than there is memory for, one after another so that each has another length."""
    requests = []
    play.rank.new_token_ratio = 0.0
    for number in range(count):
        first = number * 1000
        requests.append(play.request(range(first, first + tokens), max_new=max_new))
        play.iterate()
        play.iterate()
        play.rank.new_token_ratio = 0.0
    return requests


@pytest.mark.parametrize("loop", EVERY)
def test_all_end_with_the_tokens_they_would_have_had_alone(loop: str) -> None:
    play = _play(loop)
    requests = _crowd(play)
    play.settle()
    assert play.rank.counters.retracted > 0
    roomy = _play(loop, capacity_tokens=4000)
    alone = [roomy.request(range(number * 1000, number * 1000 + 20), 60) for number in range(4)]
    roomy.settle()
    assert roomy.rank.counters.retracted == 0
    assert [request.finish for request in requests] == ["length"] * 4
    assert [request.output for request in requests] == [request.output for request in alone]
    assert [request.cached_tokens for request in requests] == [0] * 4
    assert replayed_tiers(play.events()) == held_tiers(play.rank)
    assert (play.rank.memory.held, play.rank.memory.promised) == (0, 0)


@pytest.mark.parametrize("loop", WHOLE)
def test_the_request_with_the_least_output_is_retracted_first(loop: str) -> None:
    play = _play(loop)
    requests = _crowd(play)
    play.until(lambda: play.rank.counters.retracted)
    assert [request for request in requests if request not in play.rank.started()] == requests[-1:]
    assert list(play.rank.waiting) == requests[-1:]
    assert not requests[-1].holds_kv


@pytest.mark.parametrize("loop", WHOLE)
@pytest.mark.parametrize(("page_size", "capacity"), [(4, 256), (1, 253), (1, 254), (1, 255), (1, 256)])
def test_a_request_is_retracted_only_when_nothing_runs_that_it_is_in(
    loop: str, page_size: int, capacity: int
) -> None:
    play = _play(loop, capacity, page_size)
    requests = _crowd(play)
    while not all(request.finish for request in requests):
        play.complete()
        assert play.tree.free >= 0
        play.iterate()
        assert all((back.computed, back.private) == (0, 0) for back in play.rank.waiting)
        assert play.tree.free >= 0
    assert play.rank.counters.retracted > 0


@pytest.mark.parametrize("loop", ["overlap", "decode-overlap", "mlx-overlap"])
def test_admission_leaves_what_the_steps_under_way_take(loop: str) -> None:
    play = Playbook(loop=loop, page_size=1, capacity_tokens=100)
    play.rank.new_token_ratio = 0.0
    several = [play.request(range(first, first + 10), max_new=30) for first in (0, 1000, 2000)]
    play.until(lambda: all(len(request.output) > 3 for request in several), copies=False)
    assert play.rank.started() == several
    play.rank.new_token_ratio = 0.0
    last = play.request(range(5000, 5000 + play.rank.memory.room - 1))
    while not all(request.finish for request in (*several, last)):
        play.iterate()
        assert play.tree.free >= 0


@pytest.mark.parametrize("loop", ["decode", "decode-overlap"])
def test_a_lone_request_makes_way_for_one_that_waits_with_its_kv(loop: str) -> None:
    play = _play(loop, capacity_tokens=64, max_running=1)
    play.rank.new_token_ratio = 0.0
    lone = play.request(range(20), max_new=40)
    waiting = play.request(range(1000, 1036), max_new=2)
    play.settle()
    assert play.rank.counters.retracted == 1
    assert (waiting.finish, lone.finish) == ("length", "length")


def test_no_more_than_4096_tokens_of_output_are_asked_for_at_admission() -> None:
    play = _play(capacity_tokens=6000)
    play.request(range(20), max_new=200)
    play.request(range(1000, 1020), max_new=5900)
    play.iterate()
    assert len(play.rank.started()) == 2


def test_a_retracted_request_leaves_its_prompt_in_the_tree_and_finds_it_again() -> None:
    play = _play()
    requests = _crowd(play)
    play.until(lambda: play.rank.counters.retracted)
    [back] = play.rank.waiting
    stored = {block for event in play.events() if isinstance(event, Stored) for block in event.hashes}
    assert len(stored) == 4 * 5
    computed = play.rank.counters.prefilled_tokens
    assert computed == 4 * 20
    before = len(back.output)
    play.until(lambda: back in play.rank.started())
    assert play.rank.counters.prefilled_tokens <= computed + 20 + before
    play.settle()
    assert {request.finish for request in requests} == {"length"}


def test_a_retraction_needs_no_pause_and_removes_only_what_others_take() -> None:
    play = _play()
    _crowd(play)
    play.until(lambda: play.rank.counters.retracted)
    assert not play.rank.paused
    held = set(resident(play.rank))
    removed = {block for event in play.events() if isinstance(event, Removed) for block in event.hashes}
    assert not held & removed
    assert (
        replayed_tiers([*play.events(), *play.rank.events.pending]).get(GPU, []) == held_tiers(play.rank)[GPU]
    )


def test_vllm_preempts_the_request_admitted_last_and_it_is_the_next_to_go_on() -> None:
    play = _play(dialect=VLLM, max_running=4)
    requests = _crowd(play)
    late = play.request(range(9000, 9060), max_new=5)
    play.until(lambda: play.rank.counters.retracted)
    assert list(play.rank.waiting) == [requests[-1], late]
    assert not requests[-1].holds_kv
    play.until(lambda: requests[-1] in play.rank.started())
    assert late in play.rank.waiting
    play.settle()
    assert [request.finish for request in (*requests, late)] == ["length"] * 5
    kept = play.rank.events.pending
    assert replayed_tiers([*play.events(), *kept]) == held_tiers(play.rank)


def test_vllm_admits_whatever_prompt_fits_and_sglang_keeps_room_for_answers() -> None:
    started = {}
    for name, dialect in (("vllm", VLLM), ("sglang", SGLANG)):
        play = _play(capacity_tokens=128, dialect=dialect)
        for first in (0, 1000, 2000, 3000):
            play.request(range(first, first + 20), max_new=60)
        play.iterate()
        play.iterate()
        started[name] = len(play.rank.started())
    assert started == {"vllm": 4, "sglang": 1}


def test_the_share_kept_for_answers_falls_while_decoding_and_is_whole_again_when_idle() -> None:
    play = _play(capacity_tokens=4000)
    assert play.rank.new_token_ratio == INITIAL_RATIO
    request = play.request(range(20), max_new=900)
    play.until(lambda: len(request.output) == 300)
    assert LEAST_RATIO < play.rank.new_token_ratio < INITIAL_RATIO
    play.until(lambda: len(request.output) == 800)
    assert play.rank.new_token_ratio == LEAST_RATIO
    play.settle()
    assert play.rank.new_token_ratio == INITIAL_RATIO


def test_a_retraction_makes_admission_careful() -> None:
    play = _play()
    _crowd(play)
    play.until(lambda: play.rank.counters.retracted)
    assert play.rank.new_token_ratio > LEAST_RATIO


@pytest.mark.parametrize("loop", EVERY)
def test_the_longest_request_there_may_be_is_never_retracted(loop: str) -> None:
    play = _play(loop, capacity_tokens=64)
    request = play.run(range(20), max_new=play.rank.longest - 20)
    assert request.finish == "length"
    assert play.rank.counters.retracted == 0
