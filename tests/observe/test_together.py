"""Whichever process is asked, the fleet is the same."""

from __future__ import annotations

from itertools import permutations
from typing import Any

from router.observe.rows import BreakerRow, RankRow, WorkerRow
from router.observe.together import merged_rows

URL = "http://a:1"


def row(state: str = "ready", *ranks: RankRow, url: str = URL, **fields: Any) -> WorkerRow:
    return WorkerRow(url=url, state=state, ranks=list(ranks), **fields)


def test_load_and_refusals_add_up() -> None:
    (found,) = merged_rows([[row(inflight_requests=1, inflight_tokens=10, refusals=2)], [row(refusals=3)]])
    assert (found.inflight_requests, found.inflight_tokens, found.refusals) == (1, 10, 5)


def test_a_worker_is_what_the_process_says_that_sees_it_worst() -> None:
    for states in permutations(("ready", "failed", "paused")):
        (found,) = merged_rows([[row(state)] for state in states])
        assert found.state == "failed"
    assert merged_rows([[row("ready")], [row("starting")]])[0].state == "starting"


def test_a_worker_is_paused_once_all_processes_see_it_so() -> None:
    for states in (("ready", "paused"), ("paused", "ready")):
        assert merged_rows([[row(state)] for state in states])[0].state == "draining"
    assert merged_rows([[row("paused")], [row("paused")]])[0].state == "paused"


def test_a_worker_that_only_some_processes_have_is_shown() -> None:
    found = merged_rows([[row()], [row(), row(url="http://b:1")]])
    assert [each.url for each in found] == [URL, "http://b:1"]


def test_a_view_holds_what_it_holds_anywhere_and_is_as_good_as_the_worst() -> None:
    live = RankRow(rank=0, view="live", blocks={"GPU": 3}, predicted_blocks=1, gaps=1)
    degraded = RankRow(rank=0, view="degraded", why="lost", blocks={"GPU": 2, "CPU": 1}, gaps=7)
    for ranks in ((live, degraded), (degraded, live)):
        (found,) = merged_rows([[row("ready", rank)] for rank in ranks])
        (rank,) = found.ranks
        assert (rank.view, rank.why, rank.gaps) == ("degraded", "lost", 7)
        assert (rank.blocks, rank.predicted_blocks) == ({"GPU": 3, "CPU": 1}, 1)


def test_processes_may_not_agree_yet_on_how_many_ranks_there_are() -> None:
    (found,) = merged_rows([[row()], [row("ready", RankRow(rank=0, view="live"))]])
    assert [rank.rank for rank in found.ranks] == [0]


def test_failures_add_up_and_the_breaker_is_the_worst() -> None:
    one = row()
    one.breaker = BreakerRow(state="open", cause="failures", in_a_row=5, failures={"status": 5})
    other = row()
    other.breaker = BreakerRow(in_a_row=1, failures={"status": 1, "reset": 1}, changes={"open": {"reset": 1}})
    (found,) = merged_rows([[one], [other]])
    assert (found.breaker.state, found.breaker.cause, found.breaker.in_a_row) == ("open", "failures", 5)
    assert found.breaker.failures == {"status": 6, "reset": 1}
    assert found.breaker.changes == {"open": {"reset": 1}}
