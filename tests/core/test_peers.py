"""What processes and routers tell each other of their load and predictions, and what they make of it."""

from __future__ import annotations

import time
from array import array
from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.core.blocks import Namespace, PromptBlocks
from router.core.facts import Candidate
from router.core.index import Index
from router.core.peers import AGE_SECONDS, Peers
from router.core.rank import Rank
from router.core.said import KEY_BYTES, MOST_BYTES, MOST_KEY_BYTES, VERSION, RankKeys, RankLoad, Said, decode
from router.core.said import encode as encoded
from router.core.telling import Telling
from router.core.view import View

if TYPE_CHECKING:
    from collections.abc import Iterable

NAMES = ("http://a:1", "http://b:1")


class Side:
    """One process: two ranks, what it tells, and what it has heard."""

    def __init__(self, sender: str, router: str = "r") -> None:
        self.index = Index()
        self.ranks = {
            (name, 0): Rank(name, 0, View(self.index, "m", block_size=4, predicted_bound=10_000))
            for name in NAMES
        }
        self.woken = 0
        self.telling = Telling(router, sender, self._wake)
        self.peers = Peers(lambda worker, rank: self.ranks.get((worker, rank)))
        self.now = time.monotonic()

    def _wake(self) -> None:
        self.woken += 1

    @property
    def first(self) -> Rank:
        return self.ranks[NAMES[0], 0]

    def named(self) -> Iterable[tuple[str, Rank]]:
        return [(name, rank) for (name, _), rank in self.ranks.items()]

    def changes(self) -> list[bytes]:
        return self.telling.changes(self.named())

    def round(self) -> list[bytes]:
        return self.telling.everything(self.named())

    def hear(self, payloads: Iterable[bytes], later: float = 0.0, *, same_clock: bool = True) -> None:
        for payload in payloads:
            self.peers.hear(decode(payload), time.monotonic() + later, same_clock=same_clock)

    def tick(self, later: float = 0.0) -> list[str]:
        return self.peers.tick(self.ranks, time.monotonic() + later)

    def predict(self, tokens: Iterable[int]) -> Iterable[int]:
        """Enter a prompt at the first rank, as a request does."""
        prompt = blocks(tokens)
        candidate = Candidate(self.first, 0, 0, prompt.count)
        return self.telling.accounts.predict(candidate, prompt, time.monotonic())

    def reach(self, tokens: Iterable[int]) -> int:
        """Return the blocks of a prompt that the first rank is believed to hold."""
        keys = blocks(tokens).keys(4, bigram=False)
        return self.index.match(keys).reach.get(self.first.view.slot, 0)


def blocks(tokens: Iterable[int]) -> PromptBlocks:
    packed = array("I", tokens)
    return PromptBlocks(packed.tobytes(), len(packed), Namespace("m", None, None))


def load(rank: Rank) -> tuple[int, int]:
    return rank.load.inflight_tokens, rank.load.active_requests


def test_a_policy_sees_the_load_of_all() -> None:
    here, there = Side("a"), Side("b")
    ticket = there.telling.accounts.open(there.first.load, 100)
    own = here.telling.accounts.open(here.first.load, 7)
    here.hear(there.changes())
    assert load(here.first) == (107, 2)
    assert (here.first.load.own_tokens, here.first.load.own_requests) == (7, 1)
    ticket.first_token()
    here.hear(there.changes())
    assert load(here.first) == (7, 2)
    ticket.close()
    own.close()
    here.hear(there.changes())
    assert load(here.first) == (0, 0)


def test_one_wake_is_enough_for_a_bunch_of_changes() -> None:
    side = Side("a")
    side.telling.accounts.open(side.first.load, 100).close()
    side.telling.accounts.open(side.first.load, 100)
    assert side.woken == 1
    assert len(side.changes()) == 1
    side.telling.accounts.open(side.first.load, 100)
    assert side.woken == 2


def test_what_was_lost_is_healed_by_the_next_round() -> None:
    here, there = Side("a"), Side("b")
    here.hear(there.round())
    tickets = [there.telling.accounts.open(rank.load, 50) for rank in there.ranks.values()]
    here.hear(there.changes())
    tickets[0].close()
    there.changes()  # lost
    assert load(here.first) == (50, 1)
    here.hear(there.round())  # it has a gap before it: what it does not name may have been lost
    here.hear(there.round())
    assert [load(rank) for rank in here.ranks.values()] == [(0, 0), (50, 1)]


def test_old_messages_and_those_heard_twice_change_nothing() -> None:
    here, there = Side("a"), Side("b")
    ticket = there.telling.accounts.open(there.first.load, 50)
    old = there.changes()
    ticket.close()
    new = there.changes()
    here.hear([*new, *old, *new])
    assert load(here.first) == (0, 0)
    late = there.round()
    here.hear(late, later=AGE_SECONDS + 1)
    assert here.peers.stale == 3


@pytest.mark.parametrize("leaves", [True, False])
def test_a_peer_that_leaves_or_is_silent_counts_nothing(leaves: bool) -> None:
    here, there = Side("a"), Side("b")
    own = here.telling.accounts.open(here.first.load, 7)
    there.telling.accounts.open(there.first.load, 50)
    here.hear(there.changes())
    assert here.tick() == []
    if leaves:
        here.hear([there.telling.farewell()])
    else:
        assert here.tick(later=AGE_SECONDS + 0.1) == []  # it was itself asleep
        assert here.tick(later=AGE_SECONDS + 0.2) == ["b"]
    assert load(here.first) == (7, 1)
    assert here.peers.routers() == set()
    own.close()
    assert load(here.first) == (0, 0)


def test_a_clock_that_falls_behind_is_followed() -> None:
    here = Side("a")
    for number in range(1, 2000):
        said = Said(VERSION, "other", "b", number, 1000.0 + 59.99 * number, 0, ends_round=True)
        assert here.peers.hear(said, 60.0 * number, same_clock=False)
    assert here.peers.stale == 0


def test_a_message_that_was_long_on_its_way_is_not_taken_for_news() -> None:
    here = Side("a")
    for number, late in ((1, 0.0), (2, 0.001), (3, AGE_SECONDS + 0.1)):
        said = Said(VERSION, "other", "b", number, 1000.0 + number, 0)
        heard = here.peers.hear(said, number + late, same_clock=False)
        assert heard is (late < AGE_SECONDS)


def test_a_rank_that_is_new_gets_what_is_known_of_it() -> None:
    here, there = Side("a"), Side("b")
    there.telling.accounts.open(there.first.load, 50)
    here.hear(there.changes())
    here.ranks[NAMES[0], 0] = Rank(NAMES[0], 0, View(here.index, "m", block_size=4))
    here.tick()
    assert load(here.first) == (50, 1)
    here.peers.forget("b")
    assert load(here.first) == (0, 0)


def test_what_a_peer_has_predicted_is_believed_until_it_is_taken_back() -> None:
    here, there = Side("a"), Side("b")
    here.tick()
    keys = there.predict(range(40))
    there.telling.accounts.open(there.first.load, 40)
    here.hear(there.changes())
    assert here.reach(range(40)) == there.reach(range(40)) == 10
    there.telling.accounts.withdraw(there.first, keys)
    here.hear(there.changes())
    assert here.reach(range(40)) == there.reach(range(40)) == 0


def test_a_long_prompt_is_told_in_pieces_and_reaches_as_far() -> None:
    here, there = Side("a"), Side("b")
    here.tick()
    keys = there.predict(range(160_000))
    there.telling.accounts.open(there.first.load, 40)
    messages = there.changes()
    assert all(len(message) < 2 * MOST_KEY_BYTES for message in messages)
    here.hear(messages)
    assert here.reach(range(160_000)) == there.reach(range(160_000)) > 39_960
    there.telling.accounts.withdraw(there.first, keys)
    here.hear(there.changes())
    assert here.reach(range(160_000)) == 0


@pytest.mark.parametrize("past", [True, False])
@pytest.mark.parametrize("same_clock", [True, False])
def test_what_was_predicted_before_a_reset_is_not_believed_after_it(same_clock: bool, past: bool) -> None:
    here, there = Side("a"), Side("b")
    here.hear(there.round(), same_clock=same_clock)
    here.tick()
    there.predict(range(40))
    there.telling.accounts.open(there.first.load, 40)
    late = there.changes()
    here.first.view.reset("all_blocks_cleared", past=past)
    here.hear(late, same_clock=same_clock)
    assert here.reach(range(40)) == 0


def test_nor_is_it_by_one_who_has_never_looked_at_the_view() -> None:
    here, there = Side("a"), Side("b")
    there.predict(range(40))
    there.telling.accounts.open(there.first.load, 40)
    here.first.view.reset("all_blocks_cleared")
    here.hear(there.changes())
    assert here.reach(range(40)) == 0


def test_a_prediction_of_after_a_reset_is_believed() -> None:
    here, there = Side("a"), Side("b")
    here.first.view.reset("all_blocks_cleared")
    here.tick()
    there.predict(range(40))
    there.telling.accounts.open(there.first.load, 40)
    here.hear(there.changes())
    assert here.reach(range(40)) == 10


def test_loads_of_other_routers_are_told_apart_from_those_of_siblings() -> None:
    here, sibling, stranger = Side("a"), Side("b"), Side("c", router="other")
    for side in (sibling, stranger):
        side.telling.accounts.open(side.first.load, 10)
        here.hear(side.changes())
    assert load(here.first) == (20, 2)
    assert here.peers.load_of(here.ranks, "r") == (10, 1)
    assert here.peers.routers() == {"r", "other"}
    here.peers.forget("c")
    assert here.peers.routers() == {"r"}
    assert load(here.first) == (10, 1)


@given(st.binary(max_size=200))
def test_bytes_that_are_no_message_are_refused(payload: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT012 - some bytes may be a message, and then there is no error
        decode(payload)
        raise ValueError


NUMBERS = st.integers(0, 1 << 40)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
SENDERS = ("b", "c", "d")
URLS = st.sampled_from([*NAMES, "http://nobody:1"])
KEYS = st.builds(
    RankKeys,
    URLS,
    st.integers(0, 2),
    TIMES,
    st.lists(st.integers(0, 255), max_size=4).map(lambda k: bytes(k * 8)),
)
HOSTILE = st.builds(
    Said,
    st.just(VERSION),
    st.sampled_from(["r", "other"]),
    st.sampled_from(SENDERS),
    NUMBERS | st.integers(0, 5),
    TIMES | st.floats(-1, 1),
    NUMBERS | st.integers(0, 3),
    st.booleans(),
    st.booleans(),
    st.lists(st.builds(RankLoad, URLS, st.integers(0, 2), NUMBERS, NUMBERS), max_size=4),
    st.lists(KEYS, max_size=3),
    st.lists(KEYS, max_size=3),
)


@given(st.lists(st.tuples(HOSTILE, st.floats(0, 10), st.booleans()), max_size=12))
def test_whatever_peers_say_nothing_is_left_of_it_when_they_are_gone(
    messages: list[tuple[Said, float, bool]],
) -> None:
    here = Side("a")
    own = here.telling.accounts.open(here.first.load, 7)
    for said, now, same_clock in messages:
        here.peers.hear(decode(encoded(said)), now, same_clock=same_clock)
        assert all(min(rank.load.peer_tokens, rank.load.peer_requests) >= 0 for rank in here.ranks.values())
    for sender in SENDERS:
        here.peers.forget(sender)
    assert [load(rank) for rank in here.ranks.values()] == [(7, 1), (0, 0)]
    own.close()
    assert load(here.first) == (0, 0)


OPENS = st.tuples(st.just("open"), st.integers(0, 1), st.integers(0, 100))
ENDS = st.tuples(st.sampled_from(["first_token", "close"]), st.integers(0, 9), st.just(0))
TELLS = st.tuples(st.sampled_from(["tell", "lose", "round"]), st.just(0), st.just(0))


@given(st.lists(OPENS | ENDS | TELLS, max_size=40))
def test_after_a_round_both_see_the_same_load(steps: list[tuple[str, int, int]]) -> None:
    here, there = Side("a"), Side("b")
    tickets = []
    for what, number, tokens in steps:
        match what:
            case "open":
                tickets.append(there.telling.accounts.open(there.ranks[NAMES[number], 0].load, tokens))
            case "first_token" | "close" if tickets:
                getattr(tickets[number % len(tickets)], what)()
            case "tell":
                here.hear(there.changes())
            case "lose":
                there.changes()
            case "round":
                here.hear(there.round())
    here.hear([*there.round(), *there.round()])
    assert [load(rank) for rank in here.ranks.values()] == [load(rank) for rank in there.ranks.values()]


@pytest.mark.parametrize(
    "change",
    [
        {"version": VERSION + 1},
        {"sent": float("nan")},
        {"sender": ""},
        {"sender": "x" * 65},
        {"number": -1},
        {"loads": [["http://a:1", 0, -1, 0]]},
        {"loads": [["http://a:1", 1 << 16, 0, 0]]},
        {"loads": [["http://a:1", 0, 1 << 41, 0]]},
        {"loads": [["", 0, 0, 0]]},
        {"predicted": [["http://a:1", 0, float("inf"), b""]]},
        {"predicted": [["http://a:1", 0, 0.0, b"x" * (KEY_BYTES + 1)]]},
        {"withdrawn": [["http://a:1", 0, 0.0, b"x" * (MOST_KEY_BYTES + 8)]]},
    ],
    ids=str,
)
def test_a_message_with_something_wrong_in_it_is_refused(change: dict[str, object]) -> None:
    fields = msgspec.structs.asdict(Said(VERSION, "r", "b", 1, 0.0, 0)) | change
    with pytest.raises(ValueError):
        decode(msgspec.msgpack.encode(list(fields.values())))


def test_a_message_that_is_too_long_is_refused_unread() -> None:
    with pytest.raises(ValueError, match="too long"):
        decode(bytes(MOST_BYTES + 1))
