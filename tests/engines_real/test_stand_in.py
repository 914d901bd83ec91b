"""What the project's own stand-in for vLLM is held against by `make test` is still what the engine says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from tests.workers.http.answers import QUESTIONS, answers, recorded

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engines_real.engine import Engine


def test_the_engine_answers_as_recorded(pair: list[Engine], measured: Callable[[str], None]) -> None:
    with httpx2.Client(base_url=pair[0].url, timeout=120.0) as client:
        said = answers(client)
    for question, one, expected in zip(QUESTIONS, said, recorded(), strict=True):
        assert one == expected, question
    measured(f"{len(QUESTIONS)} answers of HTTP routes")
