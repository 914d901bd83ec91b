"""A policy of the operator's own: found, tried before anything is served, and never the end of a request."""

from __future__ import annotations

import logging
import sys
from asyncio import CancelledError
from typing import TYPE_CHECKING, Any

import pytest

from router.api.custom import Guard, load_policy, samples
from router.core import costs
from router.core.weights import Weights
from router.errors import ConfigError
from tests.core.board import Board

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from router.core.facts import Facts

SOURCE = """
from math import inf, nan
import sys

def good(facts, weights):
    return [load.inflight_tokens + tokens for load, tokens in zip(facts.loads, facts.uncached)]

def by_rank(facts, weights):
    return [one.uncached_tokens * len(one.rank.worker) for one in facts.candidates()]

def raises(facts, weights):
    return 1 / 0

def leaves(facts, weights):
    sys.exit("bye\\nnow")

def few(facts, weights):
    return [1]

def nothing(facts, weights):
    pass

def none_of_them(facts, weights):
    return [None for _ in facts.ranks]

def not_a_number(facts, weights):
    return [nan for _ in facts.ranks]

def endless(facts, weights):
    return [inf for _ in facts.ranks]

def enormous(facts, weights):
    return [10 ** 400 for _ in facts.ranks]

async def waits(facts, weights):
    return [0 for _ in facts.ranks]

def takes_three(facts, weights, more):
    return [0 for _ in facts.ranks]

class Rules:
    @staticmethod
    def inner(facts, weights):
        return facts.uncached

value = 7
"""


@pytest.fixture(autouse=True)
def own_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "own_rules.py").write_text(SOURCE)
    (tmp_path / "broken_rules.py").write_text("import no_such_module")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in {"", "."}])
    yield
    sys.modules.pop("own_rules", None)


@pytest.mark.parametrize("name", ["own_rules:good", "own_rules:by_rank", "own_rules:Rules.inner"])
def test_a_function_in_the_working_directory_is_a_policy(name: str) -> None:
    policy, guard = load_policy(name)
    board = Board()
    board.add("cold")
    board.add("warm", held=1600)
    assert board.chosen(policy) == "warm"
    assert (policy.name, guard.failures) == (name, 0)
    assert policy.terms(board.facts(), Weights(), 0) == {}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no_such_rules:good", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_rules'"),
        ("broken_rules:good", "cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'"),
        ("own_rules:nowhere", "cannot be loaded: AttributeError"),
        ("own_rules:value", "expected a function, got int"),
        ("own_rules:raises", "fails on sample facts of 2 ranks: ZeroDivisionError: division by zero"),
        ("own_rules:leaves", "fails on sample facts of 2 ranks: SystemExit: bye now"),
        ("own_rules:few", "it returns 1 costs for 2 ranks"),
        ("own_rules:nothing", "it returns NoneType, expected a list of 2 numbers"),
        ("own_rules:none_of_them", "it returns a cost of type NoneType, expected finite numbers"),
        ("own_rules:not_a_number", "it returns a cost that is not finite"),
        ("own_rules:endless", "it returns a cost that is not finite"),
        ("own_rules:enormous", "OverflowError"),
        ("own_rules:takes_three", "missing 1 required positional argument: 'more'"),
    ],
)
def test_one_that_cannot_be_used_is_told_in_one_line(name: str, why: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_policy(name)
    assert refused.value.message.startswith(f"--policy {name}: ")
    assert why in refused.value.message
    assert "\n" not in refused.value.message


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_a_function_that_waits_is_none() -> None:
    with pytest.raises(ConfigError, match="it returns coroutine, expected a list"):
        load_policy("own_rules:waits")


@pytest.mark.parametrize(
    "amounts",
    [None, [], [1.0], [1.0, "x"], [1.0, float("nan")], {0: 1, 1: 2}, "ab", [1j, 2], ZeroDivisionError],
)
def test_what_goes_wrong_later_costs_no_request_and_is_told_rarely(
    amounts: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def function(*_: object) -> Any:
        if amounts is ZeroDivisionError:
            raise ZeroDivisionError
        return amounts

    guard, facts = Guard("mine:rule", function), samples()[0]
    with caplog.at_level(logging.WARNING):
        for _ in range(50):
            assert guard(facts, Weights()) == costs.kv(facts, Weights())
    assert guard.failures == 50
    assert len(caplog.records) == 1


def test_one_that_is_slow_is_told_of_once_a_minute_and_one_that_was_held_up_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now, takes = [100.0], [0.0]

    def function(facts: Facts, _: object) -> Any:
        now[0] += takes[0]
        return list(map(float, facts.uncached))

    guard, facts = Guard("mine:rule", function, lambda: now[0]), samples()[0]
    with caplog.at_level(logging.WARNING):
        for takes[0] in [0.001] * 50 + [0.06] + [0.001] * 50:
            guard(facts, Weights())
        assert not caplog.records
        takes[0] = 0.05
        for _ in range(1000):
            guard(facts, Weights())
        assert caplog.messages[0].startswith("policy mine:rule takes ")
        assert len(caplog.messages) == 1
        for _ in range(1000):
            guard(facts, Weights())
    assert len(caplog.messages) == 2
    assert caplog.messages[1].startswith("policy mine:rule takes 50 ms for a choice")


def test_one_that_spoils_the_facts_spoils_no_choice() -> None:
    def function(facts: Facts, _: object) -> Any:
        facts.uncached.clear()
        return [0.0, 0.0, 0.0]

    facts = samples()[0]
    wanted = costs.kv(facts, Weights())
    assert Guard("mine:rule", function)(facts, Weights()) == wanted


@pytest.mark.parametrize("error", [KeyboardInterrupt, GeneratorExit, CancelledError, SystemExit])
def test_whatever_it_raises_costs_no_request(error: type[BaseException]) -> None:
    def function(*_: object) -> Any:
        raise error

    guard, facts = Guard("mine:rule", function), samples()[0]
    assert guard(facts, Weights()) == costs.kv(facts, Weights())
    assert guard.failures == 1


def test_the_ranks_are_not_its_own_to_sort() -> None:
    def function(facts: Facts, _: object) -> Any:
        facts.ranks.sort()  # type: ignore[attr-defined]

    guard, facts = Guard("mine:rule", function), samples()[0]
    assert guard(facts, Weights()) == costs.kv(facts, Weights())
    assert guard.failures == 1


def test_numbers_of_a_kind_of_its_own_are_taken_as_plain_ones() -> None:
    class Odd(int):
        def __lt__(self, other: object) -> bool:
            raise ValueError(other)

    facts = samples()[0]
    found = Guard("mine:rule", lambda *_: [Odd(1), Odd(2)])(facts, Weights())
    assert list(map(type, found)) == [float, float]


def test_samples_have_hits_sessions_adapters_and_prompts_that_are_not_known() -> None:
    found = samples()
    assert {len(facts.uncached) for facts in found} == {1, 2}
    assert {facts.session for facts in found} == {None, b"session"}
    assert {facts.prompt.namespace.lora for facts in found} == {None, "adapter"}
    assert {bool(facts.prompt.tokens) for facts in found} == {True, False}
    assert any(min(facts.uncached) < facts.prompt_tokens for facts in found)
