"""The consequences that a weight sync sees, by number as the worker model lists them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.workers.engine.playbook import Playbook, replayed, resident
from workers.engine.dialect import VLLM
from workers.engine.events import Cleared

if TYPE_CHECKING:
    from workers.engine.rank import PausedLoop

MODES: list[PausedLoop] = ["legacy", "publishing"]


def _running(paused_loop: PausedLoop, requests: int = 2) -> Playbook:
    """Return a rank with requests in the middle of decoding and everything before them published."""
    play = Playbook(page_size=4, paused_loop=paused_loop)
    play.settle()
    for start in range(requests):
        play.request(range(start * 100, start * 100 + 9), max_new=60)
    for _ in range(5):
        play.iterate()
    play.published.clear()
    return play


def test_2_legacy_a_clear_leaves_only_after_continue() -> None:
    play = _running("legacy")
    play.pause("retract")
    assert play.flush()
    play.settle()
    assert play.events() == []
    play.resume()
    play.settle()
    assert play.events()[0] == Cleared()


def test_2_publishing_a_clear_leaves_within_one_paused_iteration() -> None:
    play = _running("publishing")
    play.pause("retract")
    assert play.flush()
    play.iterate()
    assert play.events() == [Cleared()]
    play.iterate()
    assert play.events() == [Cleared()]


def _frozen(paused_loop: PausedLoop) -> Playbook:
    """Return a rank frozen in place while the blocks of a finished request are not yet published."""
    play = _running(paused_loop)
    play.request(range(500, 509), max_new=6)
    while not play.rank.events.pending:
        play.iterate()
        play.complete()
    play.published.clear()
    play.pause("in_place")
    return play


def test_3_legacy_in_place_holds_everything_since_the_last_publish() -> None:
    play = _frozen("legacy")
    play.settle()
    assert play.published == []
    play.resume()
    play.settle()
    assert replayed(play.events()) != []


def test_3_publishing_in_place_publishes_while_it_freezes_the_batch() -> None:
    play = _frozen("publishing")
    running = [(request.rid, len(request.output)) for request in play.rank.running]
    play.iterate()
    assert len(play.published) == 1
    assert [(request.rid, len(request.output)) for request in play.rank.running] == running


@pytest.mark.parametrize("paused_loop", MODES)
def test_3_in_place_keeps_requests_their_kv_and_a_flush_is_refused(paused_loop: PausedLoop) -> None:
    play = _frozen(paused_loop)
    before = resident(play.rank)
    assert not play.flush()
    assert resident(play.rank) == before
    play.resume()
    play.settle()
    assert play.rank.idle()


@pytest.mark.parametrize("paused_loop", MODES)
def test_4_retracted_requests_that_wait_do_not_block_a_flush_while_paused(paused_loop: PausedLoop) -> None:
    play = _running(paused_loop)
    play.pause("retract")
    assert len(play.rank.waiting) == 2
    assert play.flush()
    assert resident(play.rank) == []


@pytest.mark.parametrize("paused_loop", MODES)
def test_4_requests_that_run_do_block_a_flush(paused_loop: PausedLoop) -> None:
    play = _running(paused_loop)
    assert not play.flush()


@pytest.mark.parametrize("paused_loop", MODES)
def test_5_with_retracted_requests_waiting_the_engine_is_not_idle(paused_loop: PausedLoop) -> None:
    play = _running(paused_loop)
    play.pause("retract")
    assert play.rank.idle(ignore_waiting=True)
    assert not play.rank.idle()


@pytest.mark.parametrize("paused_loop", MODES)
def test_6_retract_without_flush_keeps_the_tree_and_publishes_no_clear(paused_loop: PausedLoop) -> None:
    play = _running(paused_loop)
    before = resident(play.rank)
    play.pause("retract")
    play.settle()
    assert resident(play.rank) == before
    play.resume()
    play.settle()
    assert Cleared() not in play.events()
    assert play.run(range(9)).cached_tokens == 8


@pytest.mark.parametrize("paused_loop", MODES)
def test_retracted_requests_go_on_with_the_same_tokens(paused_loop: PausedLoop) -> None:
    play, undisturbed = _running(paused_loop), _running(paused_loop)
    requests = [*play.rank.running]
    others = [*undisturbed.rank.running]
    play.pause("retract")
    play.flush()
    play.settle()
    play.resume()
    play.settle()
    undisturbed.settle()
    assert [request.output for request in requests] == [request.output for request in others]
    assert [request.cached_tokens for request in requests] == [0, 0]


@pytest.mark.parametrize("paused_loop", MODES)
def test_retract_publishes_once(paused_loop: PausedLoop) -> None:
    play = _running(paused_loop)
    play.request(range(500, 509), max_new=6)
    while not play.rank.events.pending:
        play.iterate()
        play.complete()
    play.published.clear()
    play.pause("retract")
    assert len(play.published) == 1


@pytest.mark.parametrize("paused_loop", MODES)
def test_abort_ends_every_request_and_does_not_pause(paused_loop: PausedLoop) -> None:
    play = _running(paused_loop)
    requests = [*play.rank.running, play.request(range(9), max_new=5)]
    play.pause("abort")
    assert not play.rank.paused
    play.settle()
    assert [request.finish for request in requests] == ["abort"] * 3
    assert play.rank.idle()
    assert replayed([Cleared(), *play.events()]) != []


@pytest.mark.parametrize("paused_loop", MODES)
def test_a_chunked_prefill_is_retracted_too(paused_loop: PausedLoop) -> None:
    play = Playbook(page_size=4, chunk_tokens=16, paused_loop=paused_loop)
    long = play.request(range(100), max_new=2)
    play.iterate()
    play.pause("retract")
    assert play.rank.chunked is None
    assert play.flush()
    play.resume()
    play.settle()
    assert (long.finish, long.cached_tokens) == ("length", 0)


@pytest.mark.parametrize("paused_loop", MODES)
def test_vllm_holds_a_clear_until_the_next_step(paused_loop: PausedLoop) -> None:
    play = Playbook(page_size=4, dialect=VLLM, paused_loop=paused_loop)
    play.run(range(9))
    play.published.clear()
    assert play.flush()
    play.settle()
    play.pause("in_place")
    play.settle()
    assert play.published == []
    play.resume()
    play.request(range(2))
    play.settle()
    assert play.events()[0] == Cleared()
