"""How many come at once for a prefix is learnt from those who came before."""

from __future__ import annotations

from router.core.crowds import CROWD_SECONDS, Crowds
from router.core.decide import predict
from router.core.events import Cleared
from tests.core.board import BLOCK, Board
from tests.core.frames import batch

PREFIX = 7


def crowd(crowds: Crowds, size: int, at: float) -> None:
    for _ in range(size):
        crowds.note(PREFIX, at)


def test_nothing_is_expected_of_a_prefix_that_is_asked_for_for_the_first_time() -> None:
    crowds = Crowds()
    crowd(crowds, 30, 1.0)
    assert crowds.expected(PREFIX) == 0


def test_as_many_are_expected_as_came_within_a_second_before() -> None:
    crowds = Crowds()
    crowd(crowds, 10, 1.0)
    crowd(crowds, 20, 1.0 + CROWD_SECONDS)
    crowds.note(PREFIX, 60.0)
    assert crowds.expected(PREFIX) == 30


def test_what_is_expected_follows_the_latest_crowds() -> None:
    crowds = Crowds()
    for number, size in enumerate((32, 8, 4)):
        crowd(crowds, size, 10.0 * number)
    crowds.note(PREFIX, 90.0)
    assert crowds.expected(PREFIX) == 12


def test_one_who_comes_again_and_again_is_no_crowd() -> None:
    crowds = Crowds()
    for second in range(0, 50, 5):
        crowds.note(PREFIX, float(second))
    assert crowds.expected(PREFIX) == 1


def test_prefixes_that_were_asked_for_long_ago_are_forgotten_first() -> None:
    crowds = Crowds()
    crowd(crowds, 3, 0.0)
    crowds.note(PREFIX, 5.0)
    for other in range(100, 100 + 4095):
        crowds.note(other, 6.0)
    assert crowds.expected(PREFIX) == 3
    crowds.note(99, 7.0)
    assert crowds.expected(PREFIX) == 0


def asked(board: Board, now: float, times: int = 1) -> None:
    """Have the board's prompt asked for, and tried so many times."""
    prompt = board.new_prompt()
    candidate = board.facts().candidate(0)
    for _ in range(times):
        predict(candidate, prompt, now)


def test_those_who_ask_for_the_longest_prefix_that_is_held_are_a_crowd() -> None:
    board = Board()
    board.add("a", held=800)
    board.add("b", held=320)
    assert board.facts().prefix == board.prompt.keys(BLOCK, bigram=False)[800 // BLOCK - 1]
    for _ in range(5):
        board.index.crowds.note(board.facts().prefix, 0.0)
    board.index.crowds.note(board.facts().prefix, 9.0)
    assert board.facts().crowd == 5
    assert board.facts().only([1]).crowd == 5


def test_a_request_that_is_tried_twice_asks_once() -> None:
    board = Board()
    board.add("a", held=1600)
    asked(board, 0.0, times=3)
    asked(board, 0.0)
    asked(board, 5.0)
    assert board.facts().crowd == 2


def test_when_a_view_is_emptied_no_crowd_is_expected_any_more() -> None:
    board = Board()
    board.add("a", held=1600)
    prefix = board.facts().prefix
    for at in (0.0, 0.0, 5.0):
        board.index.crowds.note(prefix, at)
    board.ranks[0].view.apply(batch(Cleared()))
    assert board.index.crowds.expected(prefix) == 0
