"""The router's count of tokens, and of those that are cached, beside the engines' own on every request."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from tests.engines_real.asking import ask
from tests.engines_real.front import routing
from tests.engines_real.traffic import talks

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.engines_real.asking import Asked
    from tests.engines_real.engine import Engine
    from tests.engines_real.traffic import Talk

_TURNS = 5
_SEQUENTIAL, _AT_ONCE, _USERS = 42, 18, 6  # conversations


async def test_prompts_count_as_many_tokens_and_as_many_cached_ones_as_the_engine_says(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    before = _hits(pair)
    async with routing([engine.url for engine in pair]) as client:
        one_by_one = await _hold(client, talks(_SEQUENTIAL, seed=1))
        at_once = await _hold_at_once(client, talks(_AT_ONCE, seed=2))
    everything = [*one_by_one, *at_once]
    assert all(each.exact for each in everything)
    counted = sum(each.counted == each.prompt_tokens for each in everything)
    right = sum(each.overlap == each.cached for each in one_by_one)
    over = [each for each in one_by_one if each.overlap > each.cached]
    cached = sum(each.cached for each in everything)
    measured(f"{counted} of {len(everything)} prompts counted alike")
    measured(f"cached tokens foretold on {right} of {len(one_by_one)} in turn")
    late = sum(each.overlap > each.cached for each in at_once)
    measured(f"more than cached on {len(over)}, of {len(at_once)} at once on {late}")
    measured(f"{cached} of {_tokens(everything)} tokens cached")
    assert len(everything) >= 300
    assert counted == len(everything)
    assert right >= 0.99 * len(one_by_one)
    assert over == []
    assert cached > 0
    assert _hits(pair) - before == cached


async def _hold(client: httpx2.AsyncClient, open_talks: list[Talk]) -> list[Asked]:
    """Take the turns of all conversations one after another, in no order among them."""
    turns = [talk for talk in open_talks for _ in range(_TURNS)]
    Random(7).shuffle(turns)
    return [await _turn(client, talk) for talk in turns]


async def _hold_at_once(client: httpx2.AsyncClient, open_talks: list[Talk]) -> list[Asked]:
    """Hold the conversations with some users at a time."""
    users = [_hold(client, open_talks[user::_USERS]) for user in range(_USERS)]
    return [asked for each in await asyncio.gather(*users) for asked in each]


async def _turn(client: httpx2.AsyncClient, talk: Talk) -> Asked:
    asked = await ask(client, talk.body())
    talk.heard(asked)
    return asked


def _hits(pair: list[Engine]) -> float:
    return sum(sum(engine.metric("vllm:prefix_cache_hits_total").values()) for engine in pair)


def _tokens(everything: list[Asked]) -> int:
    return sum(each.prompt_tokens for each in everything)
