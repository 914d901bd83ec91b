"""The consequences that a weight sync sees, by number as the worker model lists them, in every loop."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.workers.engine.playbook import PAUSABLE, Playbook, replayed, resident
from workers.engine import control
from workers.engine.dialect import VLLM
from workers.engine.events import Cleared, Stored
from workers.engine.hicache import TierConfig

if TYPE_CHECKING:
    from workers.engine.rank import PausedLoop
    from workers.engine.request import Request

MODES: list[PausedLoop] = ["legacy", "publishing"]
COMPUTING = [loop for loop in PAUSABLE if not loop.startswith("decode")]
DECODING = [loop for loop in PAUSABLE if not loop.startswith("prefill")]
DECODE_ONLY = ["decode", "decode-overlap"]
SLOW = TierConfig(host=4.0, host_bandwidth=1e6)  # a write-through outlasts many steps
STORAGE = TierConfig(host=4.0, storage=10.0, lookup=0.0)

every_mode = pytest.mark.parametrize("paused_loop", MODES)
every_loop = pytest.mark.parametrize("loop", PAUSABLE)


def _play(loop: str, paused_loop: PausedLoop, tiers: TierConfig | None = None) -> Playbook:
    """Return a rank with some blocks in its cache and everything about them published."""
    play = Playbook(
        loop=loop, page_size=4, chunk_tokens=64, paused_loop=paused_loop, tiers=tiers, capacity_tokens=4000
    )
    play.settle()
    play.run(range(9), max_new=3)
    assert replayed(play.events()) == resident(play.rank) != []
    play.published.clear()
    return play


def _working(loop: str, paused_loop: PausedLoop, tiers: TierConfig | None = None) -> tuple[Playbook, Request]:
    """Return a rank in the middle of a long request, everything published."""
    play = _play(loop, paused_loop, tiers)
    long = play.request(range(1000, 1600 if loop in COMPUTING else 1009), max_new=900)
    decoded = 0 if loop.startswith("prefill") else 300
    play.until(lambda: len(long.output) >= decoded and play.rank.started(), copies=False)
    play.published.clear()
    return play, long


def _with_pending(loop: str, paused_loop: PausedLoop) -> Playbook:
    """Return a busy rank with events that it has not published yet."""
    play = _play(loop, paused_loop, TierConfig(host=4.0, host_bandwidth=1e10))
    if loop.startswith("prefill"):  # it publishes every result; what it reaps while it waits for a room stays
        done = play.request(range(500, 509))
        play.until(lambda: done.finish)
        play.hands_over = False
        play.request(range(600, 609))
    else:
        play.request(range(100, 109), max_new=400)
        play.request(range(500, 509), max_new=9)
    play.until(lambda: play.rank.events.pending)
    play.published.clear()
    return play


@every_loop
@every_mode
def test_1_a_write_through_that_ends_during_the_pause(loop: str, paused_loop: PausedLoop) -> None:
    play = _play(loop, paused_loop, SLOW)
    short = play.request(range(2000, 2041), max_new=2)
    play.until(lambda: short.finish and not play.rank.launched)
    play.pause("retract")
    assert len(play.hicache.writes) > 0
    assert not play.flush()
    play.settle()
    assert play.flush() is (paused_loop == "publishing")
    play.resume()
    play.settle()
    assert play.flush()


@pytest.mark.parametrize("loop", COMPUTING)
@every_mode
def test_1_a_prefetch_that_the_requeue_has_started(loop: str, paused_loop: PausedLoop) -> None:
    play = _play(loop, paused_loop, replace(STORAGE, write_through=9))
    before = play.request(range(2000, 2126), max_new=2)
    long = play.request(range(1000, 1600), max_new=2)
    for _ in range(20):
        if play.rank.chunked is not long:
            play.iterate()
    control.abort(play.rank, before)  # a prefill worker would hold its KV for the whole pause
    play.pause("retract")
    assert long in play.rank.waiting
    cache = play.hicache
    assert [len(line) for line in (cache.writes, cache.loads, cache.prefetches, cache.backups)] == [
        0,
        0,
        1,
        0,
    ]
    assert not play.flush()
    play.settle()
    assert play.flush() is (paused_loop == "publishing")
    play.resume()
    play.settle()
    assert long.finish == "length"
    assert play.flush()


@every_loop
def test_1_publishing_needs_one_paused_iteration_after_the_acknowledgement(loop: str) -> None:
    play = _play(loop, "publishing", SLOW)
    short = play.request(range(2000, 2041), max_new=2)
    play.until(lambda: short.finish and not play.rank.launched)
    play.pause("retract")
    play.published.clear()
    while play.wait_for_copy():
        assert not play.flush()
        play.iterate()
    assert play.hicache.idle
    assert play.flush()
    assert {event.medium for event in play.events() if isinstance(event, Stored)} == {"CPU_PINNED"}


@pytest.mark.parametrize("loop", COMPUTING)
def test_1_a_paused_loop_tries_no_prefetch_again(loop: str) -> None:
    """A prompt that storage has but the host has no room for is looked for again only after the pause."""
    tiers = TierConfig(host=0.1, storage=10.0, prefetch=64)
    play = Playbook(
        loop=loop, page_size=4, capacity_tokens=1200, chunk_tokens=64, tiers=tiers, paused_loop="publishing"
    )
    play.settle()
    long = play.request(range(1000, 1600), max_new=2)
    play.hicache.storage.put(long.sequence.digests_of(600))
    play.until(play.rank.started)
    play.pause("retract")
    play.iterate()
    assert len(play.hicache.prefetches) == 0
    assert play.flush()
    play.resume()
    play.settle()
    assert long.finish == "length"


@every_loop
@every_mode
def test_2_when_a_clear_leaves(loop: str, paused_loop: PausedLoop) -> None:
    play = _play(loop, paused_loop)
    play.pause("retract")
    assert play.flush()
    play.iterate()
    assert play.events() == ([Cleared()] if paused_loop == "publishing" else [])
    play.settle()
    assert play.events() == ([Cleared()] if paused_loop == "publishing" else [])
    play.resume()
    play.settle()
    assert play.events() == [Cleared()]


@every_loop
@every_mode
def test_3_what_in_place_holds(loop: str, paused_loop: PausedLoop) -> None:
    play = _with_pending(loop, paused_loop)
    play.pause("in_place")
    assert play.published == []
    frozen = [(request.rid, len(request.output)) for request in play.rank.requests()]
    launched = list(play.rank.launched)
    play.iterate()
    assert len(play.published) == (paused_loop == "publishing")
    assert [(request.rid, len(request.output)) for request in play.rank.requests()] == frozen
    assert list(play.rank.launched) == launched
    play.settle()
    assert paused_loop == "publishing" or play.published == []
    play.resume()
    play.hands_over = True
    for request in play.rank.prefill.bootstrap[:] if play.rank.prefill else []:
        control.abort(play.rank, request)
    play.settle()
    assert play.published != []
    assert play.rank.idle()


@pytest.mark.parametrize("loop", ["overlap", "prefill-overlap", "decode-overlap", "mlx-overlap"])
@every_mode
def test_3_in_place_keeps_a_result_that_has_not_been_looked_at(loop: str, paused_loop: PausedLoop) -> None:
    play, _ = _working(loop, paused_loop)
    play.pause("in_place")
    assert len(play.rank.launched) == 1
    play.settle()
    assert len(play.rank.launched) == 1
    assert not play.flush()
    play.resume()
    play.settle()
    assert play.rank.idle()


@every_loop
@every_mode
def test_3_in_place_keeps_requests_their_kv_and_a_flush_is_refused(
    loop: str, paused_loop: PausedLoop
) -> None:
    play, _ = _working(loop, paused_loop)
    play.pause("in_place")
    before = resident(play.rank)
    assert not play.flush()
    assert resident(play.rank) == before
    play.resume()
    play.settle()
    assert play.rank.idle()


@pytest.mark.parametrize("loop", ["overlap", "decode-overlap", "mlx-overlap"])
@every_mode
def test_retract_processes_the_queued_result_first(loop: str, paused_loop: PausedLoop) -> None:
    play, long = _working(loop, paused_loop)
    before = len(long.output)
    play.complete()
    assert len(play.rank.launched) == 1
    processed = len(long.output)
    play.pause("retract")
    assert not play.rank.launched
    assert len(long.output) == processed + 1 > before


@pytest.mark.parametrize("loop", COMPUTING)
@every_mode
def test_4_retracted_requests_that_wait_do_not_block_a_flush_while_paused(
    loop: str, paused_loop: PausedLoop
) -> None:
    play, long = _working(loop, paused_loop)
    assert not play.flush()
    play.pause("retract")
    assert list(play.rank.waiting) == [long]
    assert play.flush()
    assert resident(play.rank) == []


@pytest.mark.parametrize("loop", DECODE_ONLY)
@every_mode
def test_4_a_waiting_request_that_holds_transferred_kv_blocks_a_flush(
    loop: str, paused_loop: PausedLoop
) -> None:
    play = Playbook(loop=loop, page_size=4, max_running=1, paused_loop=paused_loop)
    first = play.request(range(9), max_new=90)
    second = play.request(range(100, 109), max_new=90)
    for _ in range(6):
        play.iterate()
    play.pause("retract")
    assert play.rank.decode is not None
    assert play.rank.decode.retracted == [first]
    assert not play.flush()
    control.abort(play.rank, first)
    assert list(play.rank.waiting) == [second]
    assert play.rank.decode.idle
    assert not play.flush()
    control.abort(play.rank, second)
    assert play.flush()


@pytest.mark.parametrize("loop", DECODE_ONLY)
def test_a_retracted_request_of_a_decode_worker_goes_on_where_it_was(loop: str) -> None:
    play, long = _working(loop, "publishing")
    output = list(long.output)
    play.pause("retract")
    play.settle()
    play.resume()
    play.settle()
    assert long.output[: len(output)] == output
    assert (long.finish, len(long.output)) == ("length", 900)


@pytest.mark.parametrize("loop", COMPUTING)
@every_mode
def test_5_with_retracted_requests_waiting_the_engine_is_not_idle(loop: str, paused_loop: PausedLoop) -> None:
    play, _ = _working(loop, paused_loop)
    play.pause("retract")
    assert play.rank.idle(ignore_waiting=True)
    assert not play.rank.idle()


@every_loop
@every_mode
def test_6_retract_without_flush_keeps_the_tree_and_publishes_no_clear(
    loop: str, paused_loop: PausedLoop
) -> None:
    play, _ = _working(loop, paused_loop)
    play.complete()
    play.pause("retract")
    before = resident(play.rank)
    play.settle()
    assert resident(play.rank) == before != []
    play.resume()
    play.settle()
    assert Cleared() not in play.events()
    assert set(before) <= set(resident(play.rank))


@pytest.mark.parametrize("loop", [loop for loop in DECODING if loop not in DECODE_ONLY])
@every_mode
def test_retracted_requests_go_on_with_the_same_tokens(loop: str, paused_loop: PausedLoop) -> None:
    (play, request), (undisturbed, other) = _working(loop, paused_loop), _working(loop, paused_loop)
    play.pause("retract")
    play.flush()
    play.settle()
    play.resume()
    play.settle()
    undisturbed.settle()
    assert request.output == other.output
    assert request.cached_tokens == 0


@pytest.mark.parametrize("loop", ["normal", "overlap", "decode", "decode-overlap", "mlx-overlap"])
@every_mode
def test_retract_publishes_once(loop: str, paused_loop: PausedLoop) -> None:
    play = _with_pending(loop, paused_loop)
    play.pause("retract")
    assert len(play.published) == 1


@every_loop
@every_mode
def test_abort_ends_every_request_and_does_not_pause(loop: str, paused_loop: PausedLoop) -> None:
    play, long = _working(loop, paused_loop)
    waiting = play.request(range(9), max_new=5)
    play.pause("abort")
    assert not play.rank.paused
    play.settle()
    assert [long.finish, waiting.finish] == ["abort"] * 2
    assert play.rank.idle()


@every_mode
def test_a_pipeline_goes_on_during_a_pause(paused_loop: PausedLoop) -> None:
    play = Playbook(loop="pipeline", page_size=4, paused_loop=paused_loop)
    request = play.request(range(9), max_new=50)
    play.iterate()
    play.pause("retract")
    play.settle()
    assert play.rank.paused
    assert request.finish == "length"


@every_mode
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
