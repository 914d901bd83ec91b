"""Batches apply in order, once, whatever the network and the engine do."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.cursor import Cursor
from router.core.events import Batch, Cleared, Event
from router.core.steps import Apply, AskReplay, Reset, State, Step


def batch(ts: float, *events: Event) -> Batch:
    return Batch(ts, list(events), 0)


@dataclass
class Log:
    """What a cursor told its owner to do."""

    applied: list[float] = field(default_factory=list)
    resets: list[str] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)
    news: list[float] = field(default_factory=list)

    def take(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Apply):
                self.applied.append(step.batch.ts)
                self.news += [] if step.past else [step.batch.ts]
            elif isinstance(step, Reset):
                self.resets.append(step.cause)
                self.applied.clear()
            else:
                self.asked.append(step.start)


def connected(*, can_replay: bool = True) -> tuple[Cursor, Log]:
    cursor, log = Cursor(can_replay=can_replay), Log()
    log.take(cursor.connect(0.0))
    return cursor, log


def live_at(seq: int) -> tuple[Cursor, Log]:
    """Return a live cursor with replay that has applied batches 0 to `seq`, batch n at time n + 1."""
    cursor, log = connected()
    for n in range(seq + 1):
        log.take(cursor.replayed(n, batch(n + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert cursor.state is State.LIVE
    log.asked.clear()
    return cursor, log


def test_the_history_is_asked_for_on_connect_and_applied_before_live_batches() -> None:
    cursor, log = connected()
    assert (cursor.state, log.asked) == (State.REPLAYING, [0])
    log.take(cursor.live(2, batch(3.0), 0.0))
    log.take(cursor.replayed(0, batch(1.0), 0.0))
    log.take(cursor.replayed(1, batch(2.0), 0.0))
    log.take(cursor.replayed(2, batch(3.0), 0.0))
    assert log.applied == [1.0, 2.0, 3.0]
    log.take(cursor.replay_ended(0.0))
    log.take(cursor.live(3, batch(4.0), 0.0))
    assert log.applied == [1.0, 2.0, 3.0, 4.0]
    assert (cursor.state, cursor.why) == (State.LIVE, "")


def test_a_history_is_no_news_but_what_came_while_it_was_read_and_after_it_is() -> None:
    cursor, log = connected()
    log.take(cursor.live(2, batch(3.0), 0.0))
    log.take(cursor.live(3, batch(4.0), 0.0))
    for seq in range(3):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    log.take(cursor.live(4, batch(5.0, Cleared()), 0.0))
    assert (log.applied, log.news) == ([1.0, 2.0, 3.0, 4.0, 5.0], [3.0, 4.0, 5.0])


def test_without_a_history_everything_is_news() -> None:
    for can_replay in (True, False):
        cursor, log = connected(can_replay=can_replay)
        log.take(cursor.replay_ended(0.0, "no answer"))
        log.take(cursor.live(7, batch(8.0), 0.0))
        assert log.news == [8.0]


def test_what_a_gap_had_missed_is_news_once_and_what_a_rebuild_tells_again_is_not() -> None:
    cursor, log = live_at(1)
    log.take(cursor.live(4, batch(5.0), 0.0))
    for seq in (1, 2, 3, 4):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert cursor.follows(5, batch(6.0), 0.0)
    assert log.news == [3.0, 4.0, 5.0]
    for _ in range(2):
        log.take(cursor.distrust(0.0))
        for seq in range(7):
            log.take(cursor.replayed(seq, batch(seq + 1.0), 0.0))
        log.take(cursor.replay_ended(0.0))
    assert (log.applied[-1], log.news) == (7.0, [3.0, 4.0, 5.0, 7.0])


def test_what_was_lost_is_news_when_a_rebuild_brings_it_at_last() -> None:
    cursor, log = live_at(1)
    log.take(cursor.live(5, batch(6.0), 0.0))
    log.take(cursor.replay_ended(0.0, "no answer"))
    assert (cursor.state, log.news) == (State.DEGRADED, [6.0])
    for _ in range(2):
        cursor.damaged("a fault", 0.0)
        log.take(cursor.heal(0.0))
        for seq in range(6):
            log.take(cursor.replayed(seq, batch(seq + 1.0), 0.0))
        log.take(cursor.replay_ended(0.0))
        assert log.news == [6.0, 3.0, 4.0, 5.0]


def test_of_another_process_all_is_news() -> None:
    cursor, log = live_at(3)
    log.take(cursor.live(1, batch(50.0), 0.0))
    for seq in (0, 1):
        log.take(cursor.replayed(seq, batch(seq + 49.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert (log.resets, log.news) == (["restart"], [49.0, 50.0])


def test_without_replay_the_view_begins_with_the_first_batch_and_says_so() -> None:
    cursor, log = connected(can_replay=False)
    assert (cursor.state, log.asked) == (State.CONNECTING, [])
    log.take(cursor.live(7, batch(8.0), 0.0))
    assert (cursor.state, cursor.why) == (State.LIVE, "the history starts at batch 7")


def test_a_history_that_starts_late_is_said_to() -> None:
    cursor, log = connected()
    log.take(cursor.replayed(5, batch(6.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert (cursor.state, cursor.why, cursor.last_seq) == (State.LIVE, "the history starts at batch 5", 5)


def test_an_unanswered_first_replay_does_not_keep_live_batches_waiting() -> None:
    cursor, log = connected()
    log.take(cursor.live(3, batch(4.0), 0.0))
    log.take(cursor.replay_ended(2.0, "no answer"))
    assert (log.applied, cursor.state) == ([4.0], State.LIVE)
    assert "batch 3" in cursor.why


def test_a_gap_is_filled_by_replay_and_held_batches_follow_once_each() -> None:
    cursor, log = live_at(1)
    log.take(cursor.live(4, batch(5.0), 0.0))
    log.take(cursor.live(5, batch(6.0), 0.0))
    assert (cursor.state, cursor.counts.gaps, log.asked) == (State.REPLAYING, 1, [1])
    for seq in (1, 2, 3, 4):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert log.applied == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert (cursor.state, cursor.counts.lost) == (State.LIVE, 0)


def test_a_gap_without_replay_degrades_the_view_until_it_is_cleared() -> None:
    cursor, log = connected(can_replay=False)
    log.take(cursor.live(0, batch(1.0), 0.0))
    log.take(cursor.live(2, batch(3.0), 0.0))
    assert (cursor.state, cursor.counts.gaps, cursor.counts.lost) == (State.DEGRADED, 1, 1)
    assert "1 to 1" in cursor.why
    log.take(cursor.live(3, batch(4.0), 0.0))
    assert cursor.state is State.DEGRADED
    log.take(cursor.live(4, batch(5.0, Cleared()), 0.0))
    assert (cursor.state, cursor.why) == (State.LIVE, "")
    assert log.applied == [1.0, 3.0, 4.0, 5.0]


@pytest.mark.parametrize("failure", ["", "no answer"])
def test_a_hole_that_replay_cannot_fill_degrades_the_view_and_does_not_ask_for_ever(failure: str) -> None:
    cursor, log = live_at(0)
    log.take(cursor.live(2, batch(3.0), 0.0))
    log.take(cursor.replayed(0, batch(1.0), 0.0))
    log.take(cursor.replay_ended(0.0, failure))
    assert (cursor.state, log.asked, log.applied) == (State.DEGRADED, [0], [1.0, 3.0])
    assert cursor.counts.lost == 1


def test_an_engine_that_does_not_have_the_last_batch_is_another_process() -> None:
    cursor, log = live_at(5)
    log.take(cursor.linked(0.0, again=True))
    assert log.asked == [5]
    log.take(cursor.replay_ended(0.0))
    assert (log.resets, log.asked) == (["restart"], [5, 0])
    log.take(cursor.replayed(0, batch(100.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert (log.applied, cursor.state) == ([100.0], State.LIVE)


def test_a_lost_connection_that_comes_back_to_the_same_process_costs_nothing() -> None:
    cursor, log = live_at(2)
    log.take(cursor.linked(0.0, again=True))
    log.take(cursor.replayed(2, batch(3.0), 0.0))
    log.take(cursor.replayed(3, batch(4.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert (log.resets, log.applied, cursor.state) == ([], [1.0, 2.0, 3.0, 4.0], State.LIVE)


def test_without_replay_a_lower_number_on_a_fresh_connection_is_a_restart_whatever_its_clock() -> None:
    cursor, log = connected(can_replay=False)
    for seq in (0, 1, 2):
        log.take(cursor.live(seq, batch(seq + 100.0), 0.0))
    log.take(cursor.linked(0.0, again=True))
    log.take(cursor.live(0, batch(5.0), 0.0))
    assert (log.resets, log.applied) == (["restart"], [5.0])
    log.take(cursor.live(1, batch(6.0), 0.0))
    log.take(cursor.live(0, batch(5.0), 0.0))
    assert (log.applied, cursor.counts.duplicates) == ([5.0, 6.0], 1)


def test_what_was_on_its_way_when_a_flush_was_answered_is_skipped_until_the_engines_own_clear() -> None:
    cursor, log = live_at(0)
    cursor.forget(0.0, until_clear=True)
    log.take(cursor.live(1, batch(2.0), 0.0))
    log.take(cursor.live(2, batch(3.0, Cleared()), 0.0))
    log.take(cursor.live(3, batch(4.0), 0.0))
    assert (log.applied, cursor.counts.skipped) == ([1.0, 3.0, 4.0], 1)


def test_a_clear_that_never_comes_is_not_waited_for_for_ever() -> None:
    cursor, log = live_at(0)
    cursor.forget(0.0, until_clear=True)
    for seq in range(1, 100):
        log.take(cursor.live(seq, batch(seq + 1.0), 0.0))
    assert log.applied == [1.0, *[float(seq + 1) for seq in range(65, 100)]]


def test_a_view_emptied_during_a_replay_gets_nothing_that_is_older() -> None:
    cursor, log = live_at(2)
    log.take(cursor.live(5, batch(6.0), 0.0))
    cursor.forget(0.0)
    assert cursor.state is State.LIVE
    log.take(cursor.replayed(3, batch(4.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    log.take(cursor.live(6, batch(7.0), 0.0))
    assert log.applied == [1.0, 2.0, 3.0, 7.0]


def test_a_flush_during_a_replay_skips_what_is_older_and_loses_nothing_that_is_newer() -> None:
    cursor, log = live_at(2)
    log.take(cursor.live(70, batch(71.0), 0.0))
    cursor.forget(0.0, until_clear=True)
    for seq in range(2, 80):
        log.take(cursor.replayed(seq, batch(seq + 1.0, *([Cleared()] if seq == 75 else [])), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert log.applied == [1.0, 2.0, 3.0, 76.0, 77.0, 78.0, 79.0, 80.0]


def test_a_pause_that_cleared_nothing_gives_the_history_back_with_the_next_batch() -> None:
    cursor, log = live_at(2)
    cursor.forget(0.0, until_word=True)
    log.applied.clear()
    log.take(cursor.live(3, batch(4.0), 0.0))
    assert (cursor.state, log.asked) == (State.REPLAYING, [0])
    for seq in range(4):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert (log.resets, log.applied, cursor.state) == (["rebuild"], [1.0, 2.0, 3.0, 4.0], State.LIVE)


def paused_and_unanswered() -> tuple[Cursor, Log]:
    """Return a cursor whose view a pause has emptied and no history has filled again."""
    cursor, log = live_at(2)
    cursor.forget(0.0, until_word=True)
    log.applied.clear()
    log.take(cursor.live(3, batch(4.0), 0.0))
    log.take(cursor.replay_ended(2.0, "no answer"))
    assert (cursor.state, log.applied) == (State.LIVE, [4.0])
    return cursor, log


def test_a_history_that_does_not_come_after_a_pause_is_said_and_asked_for_again() -> None:
    cursor, log = paused_and_unanswered()
    assert cursor.why == "what was held before batch 3 is not known: no answer"
    log.take(cursor.heal(12.0))
    for seq in range(4):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 12.0))
    log.take(cursor.replay_ended(12.0))
    assert (cursor.why, log.applied, cursor.state) == ("", [1.0, 2.0, 3.0, 4.0], State.LIVE)
    assert cursor.heal(30.0) == []


def test_a_history_that_never_comes_is_asked_for_a_few_times_only() -> None:
    cursor, log = paused_and_unanswered()
    for _ in range(9):
        log.take(cursor.heal(12.0))
        log.take(cursor.replay_ended(14.0, "no answer"))
    assert log.asked == [0, 0, 0, 0]
    assert (cursor.why, log.applied) == ("what was held before batch 3 is not known: no answer", [4.0])


def test_a_history_that_has_become_short_meanwhile_leaves_what_is_known() -> None:
    cursor, log = paused_and_unanswered()
    log.take(cursor.heal(12.0))
    for seq in (2, 3):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 12.0))
    log.take(cursor.replay_ended(12.0))
    assert (cursor.heal(30.0), log.applied) == ([], [4.0])
    assert cursor.why == "what was held before batch 3 is not known: no answer"


def test_a_history_that_did_not_come_on_connect_is_read_later() -> None:
    cursor, log = connected()
    log.take(cursor.replay_ended(2.0, "no answer"))
    assert (cursor.state, cursor.why) == (State.LIVE, "no history: no answer")
    log.take(cursor.heal(12.0))
    for seq in (5, 6):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 12.0))
    log.take(cursor.replay_ended(12.0))
    assert (log.applied, cursor.why) == ([6.0, 7.0], "the history starts at batch 5")


def test_a_view_that_was_distrusted_says_that_its_history_did_not_come() -> None:
    cursor, log = live_at(2)
    log.take(cursor.distrust(0.0))
    log.take(cursor.replay_ended(2.0, "no answer"))
    assert cursor.why == "what was held before batch 3 is not known: no answer"


def test_without_replay_a_pause_that_cleared_nothing_leaves_a_view_that_says_what_it_does_not_know() -> None:
    cursor, log = connected(can_replay=False)
    for seq in range(3):
        log.take(cursor.live(seq, batch(seq + 1.0), 0.0))
    cursor.forget(0.0, until_word=True)
    log.take(cursor.live(3, batch(4.0), 0.0))
    assert cursor.state is State.LIVE
    assert cursor.why.startswith("what was held before batch 3 is not known")
    log.take(cursor.live(4, batch(5.0, Cleared()), 0.0))
    assert (cursor.why, log.applied) == ("", [1.0, 2.0, 3.0, 4.0, 5.0])


def test_a_pause_that_cleared_says_so_with_the_next_batch_and_nothing_older_returns() -> None:
    cursor, log = live_at(2)
    cursor.forget(0.0, until_word=True)
    log.applied.clear()
    log.take(cursor.live(3, batch(4.0, Cleared()), 0.0))
    log.take(cursor.live(4, batch(5.0), 0.0))
    assert (log.asked, log.applied, cursor.state) == ([], [4.0, 5.0], State.LIVE)


def test_a_degraded_view_is_rebuilt_from_a_complete_history() -> None:
    cursor, log = live_at(0)
    log.take(cursor.live(5, batch(6.0), 0.0))
    log.take(cursor.replay_ended(0.0, "no answer"))
    assert cursor.state is State.DEGRADED
    log.take(cursor.heal(30.0))
    log.take(cursor.live(6, batch(7.0), 30.0))
    assert log.applied == [1.0, 6.0]
    for seq in range(6):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 30.0))
    log.take(cursor.replay_ended(30.0))
    assert (cursor.state, log.applied) == (State.LIVE, [seq + 1.0 for seq in range(7)])


def degraded_at(seq: int) -> tuple[Cursor, Log]:
    """Return a cursor that has lost the batch before `seq`, the last one applied."""
    cursor, log = live_at(seq - 2)
    log.take(cursor.live(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0, "no answer"))
    assert cursor.state is State.DEGRADED
    return cursor, log


def test_of_a_degraded_view_no_more_is_forgotten_than_is_lost_when_the_history_begins_late() -> None:
    cursor, log = degraded_at(6)
    applied = list(log.applied)
    log.take(cursor.heal(30.0))
    log.take(cursor.live(7, batch(8.0), 30.0))
    for seq in range(3, 8):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 30.0))
    log.take(cursor.replay_ended(30.0))
    assert (cursor.state, log.resets, log.applied) == (State.DEGRADED, [], [*applied, 8.0])
    assert cursor.why.startswith("batches 5 to 5 are lost")
    assert cursor.heal(60.0) == []
    log.take(cursor.live(8, batch(9.0, Cleared()), 60.0))
    assert cursor.state is State.LIVE


def test_a_history_that_begins_late_is_complete_from_a_clear_on() -> None:
    cursor, log = degraded_at(6)
    log.take(cursor.heal(30.0))
    for seq in range(3, 7):
        log.take(cursor.replayed(seq, batch(seq + 1.0, *([Cleared()] if seq == 4 else [])), 30.0))
    log.take(cursor.replay_ended(30.0))
    assert (cursor.state, cursor.why, log.resets) == (
        State.LIVE,
        "",
        ["rebuild"],
    )
    assert log.applied == [5.0, 6.0, 7.0]


def test_a_rebuild_that_was_given_up_for_a_flush_swallows_no_later_replay() -> None:
    cursor, log = degraded_at(6)
    log.take(cursor.heal(30.0))
    cursor.forget(30.0)
    log.take(cursor.live(9, batch(10.0), 30.0))
    log.take(cursor.live(12, batch(13.0), 30.0))
    log.applied.clear()
    for seq in range(9, 13):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 30.0))
    log.take(cursor.replay_ended(30.0))
    assert (cursor.state, log.resets, log.applied) == (State.LIVE, [], [11.0, 12.0, 13.0])


def test_a_rebuild_that_is_not_answered_leaves_the_view_as_it_is() -> None:
    cursor, log = live_at(0)
    log.take(cursor.live(5, batch(6.0), 0.0))
    log.take(cursor.replay_ended(0.0, "no answer"))
    log.take(cursor.heal(30.0))
    log.take(cursor.replay_ended(32.0, "no answer"))
    assert (cursor.state, log.applied, log.resets) == (State.DEGRADED, [1.0, 6.0], [])


def test_without_a_connection_the_stream_is_connecting_and_says_why() -> None:
    cursor, log = Cursor(can_replay=True), Log()
    cursor.unlinked("no connection to tcp://a:1", 0.0)
    log.take(cursor.connect(0.0))
    log.take(cursor.replay_ended(2.0, "no answer"))
    assert (cursor.state, cursor.why) == (
        State.CONNECTING,
        "no connection to tcp://a:1; no history: no answer",
    )
    log.take(cursor.linked(3.0, again=False))
    log.take(cursor.replay_ended(3.0))
    assert (cursor.state, log.asked) == (State.LIVE, [0, 0])
    cursor.unlinked("the connection was lost", 4.0)
    assert (cursor.state, cursor.why) == (State.CONNECTING, "the connection was lost")


def test_damage_degrades_the_view() -> None:
    cursor, log = live_at(0)
    cursor.damaged("an event could not be applied", 0.0)
    assert (cursor.state, cursor.why) == (State.DEGRADED, "an event could not be applied")
    log.take(cursor.live(1, batch(2.0, Cleared()), 0.0))
    assert cursor.state is State.LIVE


def test_a_degraded_view_is_live_again_once_it_is_emptied() -> None:
    cursor, log = connected(can_replay=False)
    log.take(cursor.live(0, batch(1.0), 0.0))
    log.take(cursor.live(2, batch(3.0), 0.0))
    cursor.forget(0.0)
    assert cursor.state is State.LIVE


def test_a_rank_where_requests_complete_and_no_events_come_is_silent_until_they_do() -> None:
    cursor, log = connected(can_replay=False)
    log.take(cursor.live(0, batch(1.0), 0.0))
    for now in (1.0, 2.0, 3.0, 9.9):
        assert cursor.completed(now) == []
    log.take(cursor.completed(10.0))
    assert (cursor.state, log.resets) == (State.SILENT, ["silent"])
    log.take(cursor.live(5, batch(2.0), 11.0))
    assert (cursor.state, log.applied) == (State.LIVE, [2.0])


def test_a_silent_rank_whose_history_has_nothing_new_is_reset_and_read_anew_when_it_speaks() -> None:
    cursor, log = live_at(0)
    for now in (20.0, 21.0, 22.0):
        log.take(cursor.completed(now))
    log.take(cursor.replayed(0, batch(1.0), 22.0))
    log.take(cursor.replay_ended(22.0))
    assert (cursor.state, log.resets) == (State.SILENT, ["silent"])
    log.take(cursor.completed(40.0))
    assert log.asked == [0]
    log.take(cursor.live(1, batch(2.0), 41.0))
    assert log.asked == [0, 0]
    for seq in (0, 1):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 41.0))
    log.take(cursor.replay_ended(41.0))
    assert (cursor.state, log.applied) == (State.LIVE, [1.0, 2.0])


def test_a_silent_rank_is_asked_for_what_it_may_have_sent() -> None:
    cursor, log = live_at(0)
    for now in (20.0, 21.0, 22.0):
        log.take(cursor.completed(now))
    assert (cursor.state, log.asked) == (State.REPLAYING, [0])
    log.take(cursor.replayed(0, batch(1.0), 22.0))
    log.take(cursor.replayed(1, batch(2.0), 22.0))
    log.take(cursor.replay_ended(22.0))
    assert (cursor.state, log.applied) == (State.LIVE, [1.0, 2.0])


def test_a_number_the_engine_skipped_degrades_the_view_when_replay_shows_it() -> None:
    cursor, log = live_at(0)
    log.take(cursor.live(3, batch(4.0), 0.0))
    for seq in (0, 2, 3):
        log.take(cursor.replayed(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert (cursor.state, log.applied) == (State.DEGRADED, [1.0, 3.0, 4.0])


def test_a_duplicate_is_dropped_and_counted() -> None:
    cursor, log = live_at(2)
    log.take(cursor.live(2, batch(3.0), 0.0))
    log.take(cursor.live(0, batch(1.0), 0.0))
    assert (log.applied, cursor.counts.duplicates, log.resets) == ([1.0, 2.0, 3.0], 2, [])


def test_a_number_that_goes_back_with_newer_news_is_a_restart() -> None:
    cursor, log = live_at(5)
    log.take(cursor.live(0, batch(100.0), 0.0))
    assert (log.resets, log.asked) == (["restart"], [0])
    log.take(cursor.replayed(0, batch(100.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert (log.applied, cursor.last_seq, cursor.state) == ([100.0], 0, State.LIVE)


def test_a_restart_without_replay_starts_from_what_came() -> None:
    cursor, log = connected(can_replay=False)
    for seq in (0, 1, 2):
        log.take(cursor.live(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.live(1, batch(50.0), 0.0))
    assert (log.resets, log.applied, cursor.why) == (["restart"], [50.0], "the history starts at batch 1")


def test_a_restart_hidden_in_a_gap_is_found_by_the_time_of_the_last_batch() -> None:
    cursor, log = live_at(2)
    log.take(cursor.live(6, batch(106.0), 0.0))
    log.take(cursor.replayed(2, batch(102.0), 0.0))
    assert (log.resets, log.asked) == (["restart"], [2, 0])
    for seq in range(7):
        log.take(cursor.replayed(seq, batch(100.0 + seq), 0.0))
    log.take(cursor.replay_ended(0.0))
    assert log.applied == [100.0 + seq for seq in range(7)]
    assert cursor.state is State.LIVE


def test_what_is_held_during_a_replay_is_bounded_and_the_rest_is_a_gap() -> None:
    cursor, log = Cursor(can_replay=True, hold_batches=2), Log()
    log.take(cursor.connect(0.0))
    for seq in range(5):
        log.take(cursor.live(seq, batch(seq + 1.0), 0.0))
    log.take(cursor.replay_ended(0.0))
    log.take(cursor.live(5, batch(6.0), 0.0))
    assert (log.applied, log.asked) == ([1.0, 2.0], [0, 1])


def test_what_is_held_during_a_replay_is_bounded_in_bytes() -> None:
    cursor, log = Cursor(can_replay=True, hold_bytes=100), Log()
    log.take(cursor.connect(0.0))
    for seq in range(3):
        log.take(cursor.live(seq, batch(seq + 1.0), 0.0, 40))
    log.take(cursor.replay_ended(0.0))
    assert log.applied == [1.0, 2.0]


def test_answers_that_nobody_waits_for_change_nothing() -> None:
    cursor, log = live_at(2)
    log.take(cursor.replayed(3, batch(4.0), 0.0))
    log.take(cursor.replay_ended(0.0, "late"))
    assert (log.applied, cursor.state) == ([1.0, 2.0, 3.0], State.LIVE)


NETWORK = st.lists(st.sampled_from(["deliver", "drop", "twice", "late"]), min_size=1, max_size=40)


class Publisher:
    """An engine's publisher with a replay endpoint that answers or not, and a network in between."""

    def __init__(self, *, answers: bool) -> None:
        self.cursor, self.log = connected()
        self.history: list[Batch] = []
        self.answers = answers
        self.late: list[int] = []
        self.serve()

    def serve(self) -> None:
        while self.cursor.state is State.REPLAYING:
            for seq in range(self.log.asked[-1], len(self.history)) if self.answers else ():
                self.log.take(self.cursor.replayed(seq, self.history[seq], 0.0))
            self.log.take(self.cursor.replay_ended(0.0, "" if self.answers else "no answer"))

    def deliver(self, seq: int) -> None:
        self.log.take(self.cursor.live(seq, self.history[seq], 0.0))
        self.serve()

    def publish(self, fate: str) -> None:
        seq = len(self.history)
        self.history.append(batch(seq + 1.0))
        if fate == "late":
            self.late.append(seq)
        for _ in range({"deliver": 1, "twice": 2}.get(fate, 0)):
            self.deliver(seq)
        if fate == "deliver" and self.late:
            self.deliver(self.late.pop())


@given(NETWORK, st.booleans())
def test_any_network_leads_to_every_batch_once_in_order_where_replay_answers(
    fates: list[str], answers: bool
) -> None:
    publisher = Publisher(answers=answers)
    for fate in [*fates, "deliver"]:
        publisher.publish(fate)
    log = publisher.log
    assert log.resets == []
    assert log.applied == sorted(set(log.applied))
    if answers:
        assert log.applied == [one.ts for one in publisher.history]
        assert publisher.cursor.state is State.LIVE


def test_asking_is_part_of_the_steps() -> None:
    cursor = Cursor(can_replay=True)
    assert cursor.connect(0.0) == [AskReplay(0)]
