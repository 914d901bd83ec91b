"""Our tokens held against the engine's, and what comes of it."""

from __future__ import annotations

import logging
from array import array
from typing import TYPE_CHECKING, Any

from router.prompts.check import DISTRUST_AFTER, LATEST, SAMPLES, TRUST_AFTER, SelfCheck, difference
from tests.prompts.tokenising import worker

if TYPE_CHECKING:
    import pytest

    from router.prompts.tokenizer import ChatTokenizer

KEY = ("m", "vllm")


def ids(*values: int) -> bytes:
    return array("I", values).tobytes()


def test_the_first_differing_position_is_told() -> None:
    assert difference(ids(1, 2), ids(1, 2)) == ""
    assert (
        difference(ids(1, 2, 3), ids(1, 5, 3)) == "token ids differ first at 1 of 3: ours 2, the worker's 5"
    )
    assert difference(ids(1), ids(1, 5)) == "token ids differ first at 1 of 2: ours none, the worker's 5"


def test_a_model_is_distrusted_when_most_of_its_latest_counts_are_wrong_and_trusted_again_after_right_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check = SelfCheck()
    assert check.trusts(*KEY)
    assert not check.proven(*KEY)
    check.counted(*KEY, 10, 10)
    assert check.proven(*KEY)
    with caplog.at_level(logging.WARNING):
        for _ in range(LATEST // 2):
            check.counted(*KEY, 10, 11)
        assert check.trusts(*KEY)
        check.counted(*KEY, 10, 11)
    assert not check.trusts(*KEY)
    assert not check.proven(*KEY)
    assert check.why(*KEY) == "the engine counts 11 prompt tokens, the router 10"
    assert "overlap counts for nothing" in caplog.text
    for _ in range(TRUST_AFTER - 1):
        check.counted(*KEY, 10, 10)
    assert not check.trusts(*KEY)
    check.counted(*KEY, 10, 10)
    assert check.trusts(*KEY)
    assert check.why(*KEY) == ""
    assert check.totals == {"right": 1 + TRUST_AFTER, "wrong": LATEST // 2 + 1}


def test_a_model_that_has_never_been_right_is_distrusted_sooner() -> None:
    check = SelfCheck()
    for _ in range(DISTRUST_AFTER):
        assert check.trusts(*KEY)
        check.counted(*KEY, 10, 11)
    assert not check.trusts(*KEY)


def test_odd_requests_among_others_keep_the_trust() -> None:
    check = SelfCheck()
    for _ in range(10):
        for _ in range(4):
            check.counted(*KEY, 10, 10)
        for _ in range(4):
            check.counted(*KEY, 10, 11)
    assert check.trusts(*KEY)
    assert check.trusts("other", "vllm")


async def test_a_worker_is_asked_for_samples_when_it_registers(deepseek: ChatTokenizer) -> None:
    questions: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> tuple[int, Any]:
        questions.append(question)
        return 200, {"tokens": [1, 2, 3]}

    check = SelfCheck()
    async with worker(answer) as upstream:
        await check.ask(upstream, deepseek, *KEY)
    assert len(questions) == len(SAMPLES)
    assert check.records[KEY].wrong == len(SAMPLES)
    assert not check.trusts(*KEY)
    assert "token ids differ first at 0 of 3" in check.why(*KEY)


async def test_a_worker_that_says_what_we_say_proves_the_model(deepseek: ChatTokenizer) -> None:
    def answer(question: dict[str, Any]) -> tuple[int, Any]:
        if "prompt" not in question:
            return 501, {}
        return 200, {"tokens": array("I", deepseek.ids(question["prompt"], special=True)).tolist()}

    check = SelfCheck()
    async with worker(answer) as upstream:
        await check.ask(upstream, deepseek, *KEY)
    assert check.proven(*KEY)
    assert (check.records[KEY].right, check.records[KEY].wrong) == (1, 0)
