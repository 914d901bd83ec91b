"""What a request adds to a rank's load leaves it, whatever ends the request."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.ledger import Ledger, Load


def test_a_dispatch_adds_and_a_close_takes_away() -> None:
    ledger, load = Ledger(), Load()
    ticket = ledger.open(load, 100)
    assert (load.own_tokens, load.own_requests, load.last_dispatch) == (100, 1, 1)
    assert load.waiting_requests == 1
    ticket.first_token()
    assert (load.own_tokens, load.own_requests, load.waiting_requests) == (0, 1, 0)
    ticket.close()
    assert (load.own_tokens, load.own_requests, load.waiting_requests) == (0, 0, 0)


@pytest.mark.parametrize("ends", [*itertools.product(["first_token", "close"], repeat=4)])
def test_no_order_of_ends_gives_back_twice(ends: tuple[str, ...]) -> None:
    ledger, load = Ledger(), Load()
    other = ledger.open(load, 7)
    ticket = ledger.open(load, 100)
    for end in (*ends, "close"):
        getattr(ticket, end)()
    assert (load.own_tokens, load.own_requests, load.waiting_requests) == (7, 1, 1)
    other.close()
    assert (load.own_tokens, load.own_requests) == (0, 0)


def test_a_prompt_takes_of_the_cache_what_it_is_long_until_its_request_ends() -> None:
    ledger, load = Ledger(), Load(capacity_tokens=1000)
    ticket = ledger.open(load, 100, 400)
    ticket.first_token()
    assert (load.context_tokens, load.occupancy) == (400, 0.4)
    load.usage = 0.7
    assert load.occupancy == 0.7
    ticket.close()
    assert load.context_tokens == 0


def test_cached_tokens_of_our_own_prompts_that_an_engine_counts_as_waiting_are_nobody_elses() -> None:
    load, ledger = Load(), Ledger()
    for _ in range(3):
        ledger.open(load, 1200, 7200)
    load.hear_engine(3 * 7200, 3)
    assert (load.inflight_tokens, load.stranger_tokens, load.stranger_requests) == (3600, 0, 0)


def test_what_peers_and_the_engine_say_of_others_is_counted_once() -> None:
    ledger, load = Ledger(), Load()
    ticket = ledger.open(load, 100)
    load.hear(500, 2)
    assert (load.inflight_tokens, load.active_requests) == (600, 3)
    load.hear_engine(600, 3)
    assert (load.inflight_tokens, load.active_requests) == (600, 3)
    load.hear_engine(900, 5)
    assert (load.inflight_tokens, load.active_requests) == (900, 5)
    assert (load.stranger_tokens, load.stranger_requests) == (300, 2)
    assert (load.own_tokens, load.own_requests) == (100, 1)
    load.hear(0, 0)
    load.forget_engine()
    ticket.close()
    assert (load.inflight_tokens, load.active_requests) == (0, 0)


def test_a_peers_load_is_as_fresh_as_its_word_however_old_the_engines_is() -> None:
    load = Load()
    load.hear(500, 2)
    load.hear_engine(500, 2)
    load.hear(100, 1)
    assert (load.inflight_tokens, load.active_requests) == (100, 1)


def test_a_peer_that_is_not_heard_is_a_stranger_until_it_is() -> None:
    load = Load()
    load.hear_engine(500, 2)
    assert (load.inflight_tokens, load.stranger_requests) == (500, 2)
    load.hear(500, 2)
    load.hear_engine(500, 2)
    assert (load.inflight_tokens, load.active_requests, load.stranger_requests) == (500, 2, 0)


def test_what_may_have_been_our_own_is_not_taken_for_others() -> None:
    ledger, load = Ledger(), Load()
    first, second = ledger.open(load, 100), ledger.open(load, 100)
    load.listen()
    first.close()
    load.hear_engine(200, 2)
    assert (load.others_tokens, load.others_requests) == (0, 0)
    load.hear_engine(200, 2)
    assert (load.others_tokens, load.others_requests) == (100, 1)
    second.close()
    assert (load.inflight_tokens, load.active_requests) == (100, 1)


def test_the_engine_saying_less_than_our_own_changes_nothing() -> None:
    ledger, load = Ledger(), Load()
    ledger.open(load, 100)
    load.hear_engine(0, 0)
    assert (load.inflight_tokens, load.active_requests) == (100, 1)


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("open"), st.integers(0, 1000), st.just(0)),
            st.tuples(st.just("close"), st.integers(0, 9), st.just(0)),
            st.tuples(st.sampled_from(["hear", "hear_engine"]), st.integers(0, 5000), st.integers(0, 9)),
            st.tuples(st.sampled_from(["listen", "forget_engine"]), st.just(0), st.just(0)),
        ),
        max_size=40,
    )
)
def test_totals_are_always_our_own_and_others(steps: list[tuple[str, int, int]]) -> None:
    ledger, load = Ledger(), Load()
    tickets = []
    own = []
    for step, number, more in steps:
        if step == "open":
            tickets.append(ledger.open(load, number))
            own.append(number)
        elif step == "close" and number < len(tickets):
            tickets.pop(number).close()
            own.pop(number)
        elif step.startswith("hear"):
            getattr(load, step)(number, more)
        elif step != "close":
            getattr(load, step)()
        assert (load.own_tokens, load.own_requests) == (sum(own), len(own))
        assert load.others_tokens == load.peer_tokens + load.stranger_tokens
        assert min(load.stranger_tokens, load.stranger_requests) >= 0
        assert load.peak_tokens >= load.inflight_tokens
