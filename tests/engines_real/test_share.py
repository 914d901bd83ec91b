"""What it is worth to know the caches: how much of the same traffic is found cached under two policies."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from tests.engines_real.asking import ask
from tests.engines_real.front import act, routing
from tests.engines_real.traffic import drawn

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.engines_real.engine import Engine

_PREFIXES, _QUESTIONS = 24, 3
_PREFIX_TOKENS, _QUESTION_TOKENS = 320, 40
_LEAST_GAIN = 1.5


async def test_shared_prefixes_are_found_cached_far_more_often_than_under_round_robin(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    async with routing([engine.url for engine in pair]) as client:
        blind = await _share(client, "round_robin")
        knowing = await _share(client, "kv")
    measured(f"{knowing:.1%} of the tokens cached, under round_robin {blind:.1%}: {knowing / blind:.2f} x")
    assert knowing >= _LEAST_GAIN * blind


async def _share(client: httpx2.AsyncClient, policy: str) -> float:
    """Return the share of all prompt tokens that the engines find cached, beginning with empty caches."""
    await act(client, "fleet/flush")
    answers = [await ask(client, body, {"x-kv-router-policy": policy}) for body in _traffic()]
    assert all(each.overlap == each.cached for each in answers)
    return sum(each.cached for each in answers) / sum(each.prompt_tokens for each in answers)


def _traffic() -> list[dict[str, Any]]:
    """Return a few questions on each of many documents, in no order."""
    chance = Random(3)
    prompts = []
    for _ in range(_PREFIXES):
        document = drawn(chance, _PREFIX_TOKENS)
        prompts += [document + drawn(chance, _QUESTION_TOKENS) for _ in range(_QUESTIONS)]
    chance.shuffle(prompts)
    return [{"prompt": prompt, "max_tokens": 2} for prompt in prompts]
