"""The stand-in answers as a real vLLM does: its record is asked anew by `make test-engines`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx2

from tests.prompts.models import CAPTURED_TEMPLATE, deepseek
from tests.workers.http.answers import (
    ADAPTER,
    BLOCK_SIZE,
    LONGEST,
    MODEL,
    QUESTIONS,
    answers,
    recorded,
)
from tests.workers.process import started

if TYPE_CHECKING:
    from pathlib import Path


def test_every_question_is_answered_as_by_the_real_engine(tmp_path: Path) -> None:
    options = ["--engine", "vllm", "--model", MODEL, "--lora", ADAPTER, "--page-size", str(BLOCK_SIZE)]
    options += ["--max-model-len", str(LONGEST), "--tokenizer", deepseek(tmp_path, CAPTURED_TEMPLATE)]
    with (
        started("fleet", "--count", "1", *options) as process,
        httpx2.Client(base_url=process.url, timeout=60.0) as client,
    ):
        ours = answers(client)
    for question, said, expected in zip(QUESTIONS, ours, recorded(), strict=True):
        assert said == expected, question
