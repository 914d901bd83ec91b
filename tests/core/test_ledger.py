"""What a request adds to a rank's load leaves it, whatever ends the request."""

from __future__ import annotations

import itertools

import pytest

from router.core.ledger import Ledger, Load


def test_a_dispatch_adds_and_a_close_takes_away() -> None:
    ledger, load = Ledger(), Load()
    ticket = ledger.open(load, 100)
    assert (load.inflight_tokens, load.active_requests, load.last_dispatch) == (100, 1, 1)
    ticket.first_token()
    assert (load.inflight_tokens, load.active_requests) == (0, 1)
    ticket.close()
    assert (load.inflight_tokens, load.active_requests) == (0, 0)


@pytest.mark.parametrize("ends", [*itertools.product(["first_token", "close"], repeat=4)])
def test_no_order_of_ends_gives_back_twice(ends: tuple[str, ...]) -> None:
    ledger, load = Ledger(), Load()
    other = ledger.open(load, 7)
    ticket = ledger.open(load, 100)
    for end in (*ends, "close"):
        getattr(ticket, end)()
    assert (load.inflight_tokens, load.active_requests) == (7, 1)
    other.close()
    assert (load.inflight_tokens, load.active_requests) == (0, 0)
