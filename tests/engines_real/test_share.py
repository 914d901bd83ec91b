"""What it is worth to know the caches: how much of the same traffic is found cached under two policies."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.engines_real.asking import ask, nothing_claimed, usable
from tests.engines_real.engine import BLOCK_SIZE
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
    prompts = _traffic()
    async with routing([engine.url for engine in pair]) as client:
        blind = await _share(client, prompts, "round_robin")
        knowing = await _share(client, prompts, "kv")
    most = sum(_findable(prompts)) / sum(map(len, prompts))
    measured(f"{knowing:.1%} of the tokens cached, {most:.1%} can be")
    measured(f"under round_robin {blind:.1%}: {knowing / blind:.2f} x")
    assert _LEAST_GAIN * blind <= knowing <= most


async def _share(client: httpx2.AsyncClient, prompts: list[list[int]], policy: str) -> float:
    """Return the share of all prompt tokens that the engines find cached, beginning with empty caches."""
    await act(client, "fleet/flush")
    assert await nothing_claimed(client, prompts)
    headers = {"x-kv-router-policy": policy}
    answers = [await ask(client, {"prompt": prompt, "max_tokens": 2}, headers) for prompt in prompts]
    assert all(each.overlap == each.cached for each in answers)
    # The engines were empty, too: nothing is found that has not been asked since.
    assert all(each.cached <= most for each, most in zip(answers, _findable(prompts), strict=True))
    return sum(each.cached for each in answers) / sum(each.prompt_tokens for each in answers)


def _findable(prompts: list[list[int]]) -> list[int]:
    """Return how many tokens of each prompt one cache could hold that holds all those before it."""
    held: set[tuple[int, ...]] = set()
    found = []
    for prompt in prompts:
        starts = [tuple(prompt[:end]) for end in range(BLOCK_SIZE, len(prompt) + 1, BLOCK_SIZE)]
        known = BLOCK_SIZE * sum(start in held for start in starts)
        found.append(min(known, usable(len(prompt))))
        held.update(starts)
    return found


def _traffic() -> list[list[int]]:
    """Return a few questions on each of many documents, in no order."""
    chance = Random(3)
    prompts = []
    for _ in range(_PREFIXES):
        document = drawn(chance, _PREFIX_TOKENS)
        prompts += [document + drawn(chance, _QUESTION_TOKENS) for _ in range(_QUESTIONS)]
    chance.shuffle(prompts)
    return prompts
