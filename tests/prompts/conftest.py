from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from router.prompts.reader import PromptReader
from router.prompts.tokenizer import ChatTokenizer, load_tokenizer
from tests.prompts import models

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def deepseek(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """Return the tokenizer and template of the captured vLLM."""
    path = models.deepseek(tmp_path_factory.mktemp("deepseek"), models.CAPTURED_TEMPLATE)
    return load_tokenizer(path)


@pytest.fixture
def reader() -> Iterator[PromptReader]:
    reader = PromptReader()
    yield reader
    reader.close()
