"""The breaker's table, held for every order of events by hypothesis, and its causes one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.breaker import (
    CONTACT,
    FEWEST_REQUESTS,
    LONGEST_SECONDS,
    WINDOW_TURNS,
    Breaker,
    BreakerRules,
    BreakerState,
    Failure,
)

CLOSED, OPEN, HALF_OPEN = BreakerState.CLOSED, BreakerState.OPEN, BreakerState.HALF_OPEN
RULES = BreakerRules(failures=3, share=0.5, seconds=5.0)
EVENTS = ["begun", "ended", "succeeded", "eject", "probed", "rejoined", "turn", *Failure]


def opened(cause: str = "failures") -> Breaker:
    """One that has opened at 10.0 for five seconds."""
    breaker = Breaker(RULES)
    for _ in range(3):
        breaker.failed(Failure.STATUS, 10.0)
    assert (breaker.state, breaker.cause, breaker.takes) == (OPEN, cause, False)
    return breaker


def on_trial() -> Breaker:
    breaker = opened()
    breaker.probed(15.0)
    assert (breaker.state, breaker.cause, breaker.takes) == (HALF_OPEN, "probe", True)
    return breaker


@pytest.mark.parametrize("failure", [Failure.TIMEOUT, Failure.STATUS])
def test_failures_in_a_row_open_it_and_one_good_answer_ends_the_row(failure: Failure) -> None:
    breaker = Breaker(RULES)
    for _ in range(2):
        breaker.failed(failure, 1.0)
        breaker.failed(failure, 1.0)
        assert (breaker.state, breaker.troubled) == (CLOSED, True)
        breaker.succeeded()
        assert (breaker.row, breaker.troubled) == (0, False)
    for _ in range(3):
        breaker.failed(failure, 1.0)
    assert (breaker.state, breaker.cause, breaker.until) == (OPEN, "failures", 6.0)


@pytest.mark.parametrize("failure", sorted(CONTACT))
def test_lost_contact_opens_it_until_a_probe_that_began_later(failure: Failure) -> None:
    breaker = Breaker(RULES)
    breaker.failed(failure, 10.0)
    assert (breaker.state, breaker.cause) == (OPEN, failure)
    breaker.probed(9.9)
    assert breaker.state is OPEN
    breaker.probed(10.0)
    assert (breaker.state, breaker.cause) == (CLOSED, "probe")


def test_contact_lost_again_and_again_opens_it_for_longer_than_a_probe() -> None:
    breaker = Breaker(RULES)
    for _ in range(3):
        breaker.failed(Failure.RESET, 10.0)
        breaker.probed(10.0)
    assert (breaker.state, breaker.cause, breaker.until) == (OPEN, "failures", 15.0)


def test_many_requests_that_fail_at_one_moment_are_one_failure() -> None:
    breaker = Breaker(RULES)
    for _ in range(50):
        breaker.failed(Failure.RESET, 10.0)
    breaker.probed(10.1)
    assert breaker.state is CLOSED
    assert breaker.failures[Failure.RESET] == 50


def test_after_its_time_a_probe_lets_one_request_through_and_its_answer_closes_it() -> None:
    breaker = opened()
    breaker.probed(14.9)
    assert breaker.state is OPEN
    breaker.probed(15.0)
    assert breaker.takes
    breaker.begun()
    assert not breaker.takes
    breaker.succeeded()
    assert (breaker.state, breaker.cause, breaker.troubled) == (CLOSED, "trial", False)


def test_a_trial_that_ends_without_a_verdict_makes_room_for_another() -> None:
    breaker = on_trial()
    breaker.begun()
    breaker.ended()
    assert breaker.takes


def test_what_was_sent_before_the_trial_neither_decides_nor_ends_it() -> None:
    breaker = Breaker(RULES)
    older = breaker.begun()
    for _ in range(3):
        breaker.failed(Failure.STATUS, 10.0)
    breaker.probed(15.0)
    trial = breaker.begun()
    beside = breaker.begun()
    for other in (older, beside):
        breaker.ended(other)
        breaker.succeeded(other)
        breaker.failed(Failure.RESET, 15.0, other)
        assert (breaker.state, breaker.takes, breaker.troubled) == (HALF_OPEN, False, True)
    assert breaker.failures == {Failure.STATUS: 3, Failure.RESET: 2}
    breaker.succeeded(trial)
    assert (breaker.state, breaker.cause) == (CLOSED, "trial")


def test_a_trial_that_has_ended_can_still_fail_but_not_once_there_is_another() -> None:
    breaker = on_trial()
    first = breaker.begun()
    breaker.ended(first)
    second = breaker.begun()
    breaker.failed(Failure.STATUS, 15.0, first)
    assert breaker.state is HALF_OPEN
    breaker.ended(second)
    breaker.failed(Failure.STATUS, 15.0, second)
    assert (breaker.state, breaker.until) == (OPEN, 25.0)
    breaker.probed(25.0)
    breaker.succeeded(second)
    assert (breaker.state, breaker.takes) == (HALF_OPEN, True)


def test_each_trial_that_fails_doubles_the_time_up_to_a_limit_and_a_good_one_resets_it() -> None:
    breaker, now, times = on_trial(), 100.0, []
    for _ in range(6):
        breaker.begun()
        breaker.failed(Failure.STATUS, now)
        assert (breaker.state, breaker.cause) == (OPEN, "trial")
        times.append(breaker.until - now)
        now = breaker.until
        breaker.probed(now)
    assert times == [10.0, 20.0, 40.0, LONGEST_SECONDS, LONGEST_SECONDS, LONGEST_SECONDS]
    breaker.succeeded()
    for _ in range(3):
        breaker.failed(Failure.STATUS, now)
    assert breaker.until == now + 5.0


def test_one_that_was_down_and_is_back_need_not_wait_for_its_time() -> None:
    breaker = opened()
    breaker.rejoined()
    assert breaker.state is HALF_OPEN
    lost = Breaker(RULES)
    lost.failed(Failure.CONNECT, 10.0)
    lost.rejoined()
    assert lost.state is CLOSED


def test_a_share_of_failures_opens_it_once_there_are_enough_requests() -> None:
    breaker = Breaker(BreakerRules(failures=0, share=0.5))
    for _ in range(FEWEST_REQUESTS // 2 - 1):
        breaker.failed(Failure.STATUS, 1.0)
    breaker.good += FEWEST_REQUESTS // 2 - 1
    breaker.turn()
    breaker.failed(Failure.STATUS, 2.0)
    assert breaker.state is CLOSED
    breaker.failed(Failure.STATUS, 2.0)
    assert (breaker.state, breaker.cause) == (OPEN, "share")
    assert breaker.counts() == (0, 0)


def test_what_has_left_the_window_does_not_count() -> None:
    breaker = Breaker(BreakerRules(failures=0))
    for _ in range(FEWEST_REQUESTS - 1):
        breaker.failed(Failure.STATUS, 1.0)
    for _ in range(WINDOW_TURNS):
        breaker.turn()
    assert breaker.counts() == (0, 0)
    breaker.failed(Failure.STATUS, 99.0)
    assert breaker.state is CLOSED


def test_with_every_rule_off_only_lost_contact_opens_it() -> None:
    breaker = Breaker(BreakerRules(failures=0, share=0.0))
    for _ in range(1000):
        breaker.failed(Failure.STATUS, 1.0)
    assert breaker.state is CLOSED
    breaker.failed(Failure.CONNECT, 1.0)
    assert breaker.state is OPEN


def test_an_outlier_is_ejected_once() -> None:
    breaker = Breaker(RULES)
    breaker.eject(1.0)
    breaker.eject(2.0)
    assert (breaker.cause, breaker.until, sum(breaker.changes.values())) == ("outlier", 6.0, 1)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.floats(0.0, 20.0)), max_size=200))
def test_whatever_happens_it_follows_its_table(events: list[tuple[str, float]]) -> None:
    breaker, now = Breaker(RULES), 0.0
    for event, seconds in events:
        now += seconds
        before, changes = breaker.state, breaker.changes.total()
        if isinstance(event, Failure):
            breaker.failed(event, now)
        elif event in {"eject", "probed"}:
            getattr(breaker, event)(now)
        else:
            getattr(breaker, event)()
        after = breaker.state
        assert breaker.changes.total() - changes == (before is not after)
        assert (before, after) != (CLOSED, HALF_OPEN)
        assert breaker.troubled or (after is CLOSED and breaker.row == 0)
        if after is CLOSED:
            assert breaker.takes
            assert breaker.row < RULES.failures or before is not CLOSED
        if before is OPEN and after is not OPEN:
            assert event in {"probed", "rejoined"}
            assert event == "rejoined" or now >= breaker.until
        if after is OPEN:
            assert not breaker.takes
            assert breaker.until <= now + LONGEST_SECONDS
    # However it stands, a probe after its time and one good answer close it.
    breaker.probed(now + LONGEST_SECONDS)
    breaker.succeeded()
    assert breaker.state is CLOSED
