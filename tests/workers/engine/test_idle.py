"""Each thing that keeps an engine from being idle, on its own: a flush must not overlook it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.workers.engine.playbook import PAUSABLE, Playbook
from workers.engine import control
from workers.engine.events import HOST, Stored
from workers.engine.hicache import TierConfig
from workers.engine.sequence import sequence_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers.engine.rank import PausedLoop
    from workers.engine.request import Request

FIRST, SECOND, THIRD = range(100, 133), range(200, 233), range(300, 333)
MODES: list[PausedLoop] = ["legacy", "publishing"]
every_mode = pytest.mark.parametrize("paused_loop", MODES)
every_loop = pytest.mark.parametrize("loop", PAUSABLE)
whole_loop = pytest.mark.parametrize("loop", ["normal", "overlap", "mlx-overlap"])
decode_loop = pytest.mark.parametrize("loop", ["decode", "decode-overlap"])


def _play(loop: str, paused_loop: PausedLoop = "publishing", **tiers: Any) -> Playbook:
    config = TierConfig(**({"host": 4.0} | tiers)) if tiers else None
    play = Playbook(loop=loop, page_size=4, capacity_tokens=48, paused_loop=paused_loop, tiers=config)
    play.settle()
    return play


def _tables(play: Playbook) -> list[int]:
    cache = play.hicache
    return [len(line) for line in (cache.writes, cache.loads, cache.prefetches, cache.backups)]


def _finish(play: Playbook, tokens: range) -> Request:
    """Run a request to its end, and no copy that lasts longer."""
    request = play.request(tokens)
    play.until(lambda: request.finish and not play.rank.launched)
    return request


def _writing(loop: str, paused_loop: PausedLoop) -> Playbook:
    play = _play(loop, paused_loop, host_bandwidth=1e5)
    request = play.request(FIRST)
    play.until(play.hicache.writes.__len__, copies=False)
    play.pause("retract")
    control.abort(play.rank, request)
    return play


def _loading(loop: str, paused_loop: PausedLoop) -> Playbook:
    play = _play(loop, paused_loop, host_bandwidth=1e9)
    for tokens in (FIRST, SECOND):
        play.run(tokens)
    request = play.request(FIRST)
    play.until(play.hicache.loads.__len__, copies=False)
    play.pause("retract")
    control.abort(play.rank, request)
    return play


def _backing_up(loop: str, paused_loop: PausedLoop) -> Playbook:
    play = _play(loop, paused_loop, storage=10.0, prefetch=4096, host_bandwidth=1e12, storage_bandwidth=1e5)
    _finish(play, FIRST)
    play.until(lambda: _tables(play) == [0, 0, 0, 1])
    assert play.rank.requests() == []
    play.pause("retract")
    return play


@every_loop
@every_mode
@pytest.mark.parametrize(
    ("begin", "tables"), [(_writing, [1, 0, 0, 0]), (_loading, [0, 1, 0, 0]), (_backing_up, [0, 0, 0, 1])]
)
def test_1_a_copy_on_its_own_holds_up_a_flush_until_it_is_reaped(
    begin: Callable[[str, PausedLoop], Playbook], tables: list[int], loop: str, paused_loop: PausedLoop
) -> None:
    play = begin(loop, paused_loop)
    assert _tables(play) == tables
    assert not play.flush()
    play.settle()
    assert play.flush() is (paused_loop == "publishing")
    play.resume()
    play.settle()
    assert play.flush()


@whole_loop
def test_1_a_pause_does_not_retry_a_prefetch_that_now_has_room(loop: str) -> None:
    """The host is full of a copy that is backed up; that ends during the pause, and the copy could go."""
    play = _play(loop, storage=10.0, host=0.75, prefetch=16, host_bandwidth=1e12, storage_bandwidth=1e5)
    _finish(play, FIRST)
    play.until(lambda: _tables(play) == [0, 0, 0, 1])
    _finish(play, SECOND)
    play.hicache.storage.put(sequence_of(list(THIRD), 4).digests_of(len(THIRD)))
    third = play.request(THIRD)
    assert _tables(play) == [0, 0, 0, 1]
    play.pause("retract")
    assert play.wait_for_copy()
    play.iterate()
    assert _tables(play) == [0, 0, 0, 0]
    play.published.clear()
    play.resume()
    play.iterate()
    assert _tables(play) == [0, 0, 1, 0]
    play.settle()
    assert any(isinstance(event, Stored) and event.medium == HOST for event in play.events())
    assert third.finish == "length"


@pytest.mark.parametrize("loop", ["overlap", "decode-overlap", "mlx-overlap"])
@pytest.mark.parametrize("pauses", [False, True])
def test_a_result_that_nobody_has_looked_at_is_not_idle(loop: str, *, pauses: bool) -> None:
    play = _play(loop)
    request = play.request(range(9), max_new=3)
    play.until(lambda: request.finish, copies=False)
    assert (len(play.rank.launched), play.rank.requests()) == (1, [])
    if pauses:
        play.pause("in_place")
    assert not play.flush()
    assert not play.rank.idle(ignore_waiting=True)
    play.resume()
    play.settle()
    assert play.flush()


@pytest.mark.parametrize("pauses", [False, True])
def test_a_prompt_that_is_not_decoded_yet_is_not_idle(*, pauses: bool) -> None:
    play = _play("normal")
    request = play.request(range(9), max_new=3)
    play.iterate()
    play.complete()
    assert (play.rank.last_batch, play.rank.running) == ([request], [])
    if pauses:
        play.pause("in_place")
    assert not play.flush()
    play.resume()
    play.settle()
    assert play.flush()


@whole_loop
def test_a_waiting_request_holds_up_a_flush_only_without_a_pause(loop: str) -> None:
    play = _play(loop)
    waiting = play.request(range(9))
    assert play.rank.requests() == [waiting]
    assert not play.flush()
    play.pause("in_place")
    assert play.flush()
    play.resume()
    assert not play.flush()
    play.settle()
    assert play.flush()


@decode_loop
@every_mode
def test_each_queue_of_a_decode_worker_holds_up_a_flush(loop: str, paused_loop: PausedLoop) -> None:
    play = _play(loop, paused_loop)
    side = play.rank.decode
    assert side is not None
    play.hands_over = False
    request = play.request(range(9), max_new=5, pull=lambda: None)
    play.pause("retract")
    assert (side.prealloc, side.transfer, side.retracted) == ([request], [], [])
    assert not play.flush()
    play.resume()
    play.iterate()
    play.pause("retract")
    assert (side.prealloc, side.transfer, side.retracted) == ([], [request], [])
    assert not play.flush()
    play.resume()
    control.arrive(play.rank, request, None)
    play.iterate()
    play.pause("retract")
    assert (side.prealloc, side.transfer, side.retracted) == ([], [], [request])
    assert play.rank.requests() == [request]
    assert not play.flush()
    play.settle()
    assert not play.flush()
    play.resume()
    play.settle()
    assert request.finish == "length"
    assert play.flush()


def test_mlx_overlap_runs_ahead_of_decode_steps_only() -> None:
    ahead = {loop: _launched_ahead_of(loop) for loop in ("overlap", "mlx-overlap")}
    assert ahead == {"overlap": {"prefill", "decode"}, "mlx-overlap": {"decode"}}


def _launched_ahead_of(loop: str) -> set[str]:
    """Return the kinds of batches before whose results another one was launched."""
    play = Playbook(loop=loop, page_size=4, chunk_tokens=64)
    for first in (0, 1000):
        play.request(range(first, first + 100), max_new=5)
    kinds: set[str] = set()
    while play.rank.requests():
        play.iterate()
        kinds.update("prefill" if entry.step.pieces else "decode" for entry in [*play.rank.launched][:-1])
    return kinds
