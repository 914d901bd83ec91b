"""The queues of prefill and decode workers, without a clock: what moves them, and what a pause freezes."""

from __future__ import annotations

import pytest

from tests.workers.engine.playbook import Playbook, held_tiers, replayed_tiers
from workers.engine import control
from workers.engine.dialect import VLLM
from workers.engine.events import Cleared, Stored
from workers.engine.hicache import TierConfig
from workers.engine.load import load_of

PREFILL = ["prefill", "prefill-overlap"]
every_prefill_loop = pytest.mark.parametrize("loop", PREFILL)
every_mode = pytest.mark.parametrize("paused_loop", ["legacy", "publishing"])


@every_prefill_loop
def test_a_prompt_in_a_batch_runs(loop: str) -> None:
    play = Playbook(loop=loop, page_size=4)
    request = play.request(range(40))
    play.iterate()
    assert play.rank.started() == play.rank.requests() == [request]
    assert (load_of(play.rank).running, load_of(play.rank).waiting) == (1, 0)
    assert not play.rank.idle()
    play.settle()
    assert play.rank.requests() == []
    assert play.rank.idle()


@every_prefill_loop
def test_a_prompt_in_the_result_queue_is_aborted(loop: str) -> None:
    play = Playbook(loop=loop, page_size=4)
    one, other = play.request(range(40)), play.request(range(100, 140))
    play.iterate()
    assert control.find(play.rank, one.rid) == [one]
    play.pause("abort")
    play.settle()
    assert (one.finish, other.finish) == ("abort", "abort")
    assert play.rank.idle()


@every_prefill_loop
def test_kv_that_has_arrived_is_a_request_until_the_scheduler_looks(loop: str) -> None:
    play = Playbook(loop=loop, page_size=4)
    request = play.request(range(40))
    play.until(lambda: play.rank.prefill is not None and len(play.rank.prefill.inflight), copies=False)
    assert play.rank.prefill is not None
    play.rank.prefill.inflight.advance(play.now + 9)
    assert play.rank.requests() == [request]
    control.abort_all(play.rank)
    assert request.finish == "abort"


@every_prefill_loop
def test_the_edge_is_told_when_kv_will_be_there_before_the_scheduler_looks(loop: str) -> None:
    play = Playbook(loop=loop, page_size=4, transfer_bandwidth=40 * 131_072 / 7.0)
    told: list[float] = []
    request = play.request(range(40), sends=told.append)
    play.until(lambda: told, copies=False)
    assert request.finish is None
    play.settle()
    assert told == [pytest.approx(play.now)]
    assert request.finish == "length"


@every_prefill_loop
@every_mode
@pytest.mark.parametrize("mode", ["in_place", "retract"])
def test_a_paused_prefill_worker_leaves_its_handshakes_where_they_are(
    loop: str, paused_loop: str, mode: str
) -> None:
    tiers = TierConfig(host=4.0, storage=10.0, prefetch=64)
    play = Playbook(loop=loop, page_size=4, paused_loop=paused_loop, tiers=tiers, capacity_tokens=4000)
    play.settle()
    play.hands_over = False
    request = play.request(range(1000))
    play.settle()
    play.pause("in_place" if mode == "in_place" else "retract")
    side = play.rank.prefill
    assert side is not None
    assert request.room is not None
    side.ask(request.room)
    play.settle()
    assert side.bootstrap == [request]
    assert not play.rank.waiting
    assert play.hicache.idle
    assert not play.flush()
    play.resume()
    play.settle()
    assert request.finish == "length"


@every_prefill_loop
def test_a_room_is_asked_for_before_or_after_its_prompt_has_come(loop: str) -> None:
    play = Playbook(loop=loop, page_size=4)
    early = play.request(range(40))
    play.hands_over = False
    late, never = play.request(range(50, 90)), play.request(range(200, 240))
    play.settle()
    assert (early.finish, late.finish) == ("length", None)
    assert play.rank.prefill is not None
    assert late.room is not None
    play.rank.prefill.ask(late.room)
    play.settle()
    assert (late.finish, never.finish) == ("length", None)
    control.abort(play.rank, never)
    assert play.rank.idle()


@pytest.mark.parametrize("arrived", [0, 1, 2])
def test_a_clear_makes_kv_from_elsewhere_start_at_the_root_again(arrived: int) -> None:
    """Two prompts on their way share what was resident; so many have arrived when the clear comes."""
    play = Playbook(dialect=VLLM, page_size=4, max_running=1)
    play.run(range(9))
    blocker = play.request(range(900, 905), max_new=40)
    play.iterate()
    play.hands_over = False
    pulled: list[int] = []
    ends = (range(8, 16), range(50, 58))
    requests = [
        play.request([*range(8), *end], 3, remote=True, pull=lambda: pulled.append(1)) for end in ends
    ]
    play.until(lambda: len(pulled) == 2, copies=False)
    for request in requests[:arrived]:
        control.arrive(play.rank, request, None)
    play.iterate()
    play.complete()
    control.retract(play.rank, play.now)
    play.rank.clear()
    for request in requests[arrived:]:
        control.arrive(play.rank, request, None)
    play.settle()
    assert [request.finish for request in (blocker, *requests)] == ["length"] * 3
    _whole(play)


def _whole(play: Playbook) -> None:
    """Check that every block stored since the last clear continues one that is there, or is a first one."""
    events = play.events()
    since = len(events) - events[::-1].index(Cleared())
    known: set[int | bytes | None] = {None}
    for event in events[since:]:
        assert isinstance(event, Stored)
        assert event.parent in known
        known.update(event.hashes)
    assert replayed_tiers(events) == held_tiers(play.rank)
