from __future__ import annotations

import pytest

from tests.workers.engine.playbook import Playbook, replayed, resident
from workers.engine import control
from workers.engine.dialect import VLLM
from workers.engine.events import Cleared, Stored
from workers.engine.timing import PROFILES, Profile


def test_the_first_batch_of_an_sglang_process_is_a_clear() -> None:
    play = Playbook()
    play.settle()
    assert [batch.events for batch in play.published] == [[Cleared()]]


def test_a_vllm_process_starts_without_one() -> None:
    play = Playbook(dialect=VLLM, page_size=4)
    play.run(range(9))
    assert isinstance(play.events()[0], Stored)


def test_a_prefill_result_is_published_before_the_request_ends() -> None:
    play = Playbook(page_size=4)
    play.settle()
    play.published.clear()
    request = play.request(range(9), max_new=20)
    play.iterate()
    play.iterate()
    assert len(play.published) == 1
    assert len(request.output) == 1


def test_decoding_publishes_every_40th_step_only() -> None:
    play = Playbook(page_size=4)
    play.settle()
    play.request(range(9), max_new=200)
    short = play.request(range(50, 59), max_new=6)
    while short.finish is None:
        play.iterate()
    play.published.clear()
    while not play.published:
        play.iterate()
    assert play.rank.counters.decode_steps == 40


def test_an_idle_engine_publishes_what_is_left() -> None:
    play = Playbook(page_size=4)
    play.settle()
    play.run(range(9), max_new=8)
    assert replayed(play.events()) == resident(play.rank)
    assert len(resident(play.rank)) == 4


def test_vllm_stores_a_block_as_soon_as_it_is_full() -> None:
    play = Playbook(page_size=4, dialect=VLLM)
    request = play.request(range(3), max_new=9)
    while len(request.output) < 4:
        play.iterate()
    assert len(replayed(play.events())) == 1


def test_the_last_output_token_is_not_in_the_cache() -> None:
    play = Playbook(page_size=1)
    play.run(range(5), max_new=3)
    assert len(resident(play.rank)) == 7


def test_a_follow_up_turn_hits_the_output_of_the_one_before() -> None:
    play = Playbook(page_size=4)
    first = play.run(range(9), max_new=12)
    second = play.run([*range(9), *first.output, 77])
    assert second.cached_tokens == 20


def test_a_long_prompt_is_prefilled_in_page_aligned_chunks() -> None:
    play = Playbook(page_size=4, chunk_tokens=18)
    play.settle()
    play.published.clear()
    request = play.request(range(50), max_new=1)
    play.settle()
    sizes = [len(event.hashes) for event in play.events() if isinstance(event, Stored)]
    assert sizes == [4, 4, 4]
    assert request.cached_tokens == 0


def test_requests_share_one_decode_batch_and_the_cap_is_kept() -> None:
    play = Playbook(page_size=4, max_running=3)
    requests = [play.request(range(start, start + 9), max_new=10) for start in range(0, 500, 100)]
    most = 0
    while not all(request.finish for request in requests):
        play.iterate()
        most = max(most, len(play.rank.running))
    assert most == 3


def test_a_request_that_does_not_fit_waits_for_room() -> None:
    play = Playbook(page_size=4, capacity_tokens=64)
    first = play.request(range(30), max_new=20)
    second = play.request(range(100, 130), max_new=20)
    play.iterate()
    play.iterate()
    assert (len(play.rank.running), len(play.rank.waiting)) == (1, 1)
    play.settle()
    assert (first.finish, second.finish) == ("length", "length")


def test_the_longest_request_there_may_be_is_served() -> None:
    play = Playbook(page_size=4, capacity_tokens=64)
    for _ in range(2):
        assert play.run(range(play.rank.longest - 1), max_new=1).finish == "length"


def test_an_aborted_request_leaves_nothing_behind() -> None:
    play = Playbook(page_size=4)
    running, waiting = play.request(range(9), max_new=50), None
    play.iterate()
    play.complete()
    waiting = play.request(range(100, 109), max_new=5)
    control.abort(play.rank, running)
    control.abort(play.rank, waiting)
    assert waiting.finish == "abort"
    play.settle()
    assert running.finish == "abort"
    assert len(running.output) == 1
    assert play.rank.memory.held == 0


@pytest.mark.parametrize("seed_prompt", [[1, 2, 3], [9] * 40])
def test_equal_prompts_are_continued_equally(seed_prompt: list[int]) -> None:
    assert Playbook().run(seed_prompt, 12).output == Playbook(page_size=4).run(seed_prompt, 12).output
    assert Playbook().run(seed_prompt, 12).output != Playbook().run([*seed_prompt, 4], 12).output


@pytest.mark.parametrize(
    ("name", "prefill", "step"),
    [("8b-h100", 0.030 + 1000 * 250e-6, 0.012), ("70b-tp8", 0.080 + 1000 * 500e-6, 0.025)],
)
def test_reference_machines_take_the_time_they_are_known_for(name: str, prefill: float, step: float) -> None:
    profile = PROFILES[name]
    assert profile.prefill_seconds(1000) == pytest.approx(prefill)
    assert step <= profile.decode_seconds(1) < step * 1.01
    assert profile.decode_seconds(64) > profile.decode_seconds(1)


def test_qwen3_32b_computes_15900_prompt_tokens_a_second() -> None:
    profile = PROFILES["qwen3-32b-2xh100"]
    assert profile.prefill_seconds(15_900) - profile.prefill_seconds(0) == pytest.approx(1.0)


def test_time_passes_as_the_profile_says() -> None:
    play = Playbook(profile=Profile(0.030, 0.001, 0.010, 0.001))
    play.run(range(100), max_new=3)
    assert play.now == pytest.approx(0.030 + 100 * 0.001 + 2 * 0.011)
    before = play.now
    play.run(range(100), max_new=1)
    assert play.now - before == pytest.approx(0.031)
