"""Routes that count in words of their own: the router reads them right, and goes on trusting its tokens."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines_real.asking import explain
from tests.engines_real.front import routing
from tests.engines_real.model import NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engines_real.engine import Engine

_TEXT = "the quick brown fox jumps over the lazy dog " * 12
_CHAT: dict[str, Any] = {"model": NAME, "messages": [{"role": "user", "content": _TEXT}], "max_tokens": 4}
_RESPONSE: dict[str, Any] = {"model": NAME, "input": _TEXT, "max_output_tokens": 4}
# Of the tokens of the prompt, what its input_tokens leave out, and what of that was cached.
_ROUTES = [
    (
        "/v1/messages",
        _CHAT,
        ("cache_read_input_tokens", "cache_creation_input_tokens"),
        "cache_read_input_tokens",
    ),
    ("/v1/responses", _RESPONSE, (), "cached_tokens"),
]
# Nine wrong counts of the latest sixteen, and the router would no longer trust its own.
_ROUNDS = 6


@pytest.mark.parametrize(("path", "body", "apart", "cached"), _ROUTES, ids=["messages", "responses"])
async def test_counts_in_other_words_are_the_same_counts(
    pair: list[Engine],
    path: str,
    body: dict[str, Any],
    apart: tuple[str, ...],
    cached: str,
    measured: Callable[[str], None],
) -> None:
    async with routing([pair[0].url]) as client:
        counted = (await explain(client, _CHAT))["prompt_tokens"]
        for number in range(2 * _ROUNDS):
            answer = await client.post(path, json=body | {"stream": number % 2 == 1})
            assert answer.status_code == 200, answer.text
            said = {name: _last(answer.text, name) for name in ("input_tokens", cached, *apart)}
            assert said["input_tokens"] + sum(said[name] for name in apart) == counted
            assert said[cached] == int(answer.headers["x-kv-router-overlap-tokens"])
        [row] = (await client.get("/workers")).json()["workers"]
    assert row["tokens"] != "distrusted", row["tokens_why"]
    measured(f"{2 * _ROUNDS} answers of {path}")


def _last(text: str, name: str) -> int:
    """Return a count from the end of an answer."""
    return int(re.findall(rf'"{name}": ?(\d+)', text)[-1])
