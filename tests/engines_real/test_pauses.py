"""Caches that are emptied while the engine says nothing: the view is empty at once, and stays so.

A vLLM publishes inside its steps only. One that is idle or paused tells of a reset with the next request,
which may be minutes away; by then the view has to hold what came after the reset, and nothing from before.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.engines_real.asking import ask, calling, claims, usable
from tests.engines_real.front import act, routing
from tests.engines_real.listener import listening
from tests.engines_real.traffic import drawn
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.engines_real.engine import Engine
    from tests.engines_real.listener import Listener

_TOKENS = 300
# For so long the engine is watched to say nothing.
_QUIET_SECONDS = 10.0
_SYNC = {"update": {"update_info": {"factor": 0.5}, "weight_version": "step-1"}}


@dataclass(frozen=True, slots=True)
class Reset:
    """Calls that empty a cache, of the router's admin API or of the engine, and what lets it go on."""

    name: str
    calls: tuple[str, ...]
    resume: str = ""


BY_ROUTER = [Reset("a flush while idle", ("workers/{url}/flush",)), Reset("a weight sync", ("weight_sync",))]
BY_OTHERS = [
    Reset("a pause that keeps requests", ("/pause?mode=keep",), "/resume"),
    Reset("a pause that aborts them", ("/pause",), "/resume"),
    Reset("a sleep of level 1", ("/sleep?level=1",), "/wake_up"),
    Reset("a sleep of level 2", ("/sleep?level=2",), "/wake_up"),
]


def name(reset: Reset) -> str:
    return reset.name.replace(" ", "_")


@pytest.mark.parametrize("reset", BY_ROUTER, ids=name)
async def test_what_the_router_is_told_to_empty_is_empty_when_it_answers(
    pair: list[Engine], reset: Reset, measured: Callable[[str], None]
) -> None:
    engine, prompts = pair[0], _prompts(reset.name)
    async with routing([engine.url]) as client, listening(engine.plan.events) as heard:
        await _warm(client, prompts)
        cleared = len(heard.events("AllBlocksCleared"))
        for call in reset.calls:
            await act(client, call.format(url=engine.url), _SYNC if call == "weight_sync" else None)
        assert [await _claimed(client, prompt) for prompt in prompts] == [0] * len(prompts)
        await _stays_empty(client, prompts, heard, cleared)
        measured(f"empty at once, the engine said nothing for {_QUIET_SECONDS:g} s more")
        await _goes_on(client, prompts, heard, cleared)


@pytest.mark.parametrize("reset", BY_OTHERS, ids=name)
async def test_what_others_empty_is_seen_by_asking_the_engine(
    pair: list[Engine], reset: Reset, measured: Callable[[str], None]
) -> None:
    engine, prompts = pair[1], _prompts(reset.name)
    async with (
        routing([engine.url]) as client,
        listening(engine.plan.events) as heard,
        calling(engine.url) as direct,
    ):
        await _warm(client, prompts)
        cleared, began = len(heard.events("AllBlocksCleared")), time.monotonic()
        for call in reset.calls:
            assert (await direct.post(call)).status_code == 200
        await until_awaited(lambda: _nothing_claimed(client, prompts))
        took = time.monotonic() - began
        await _stays_empty(client, prompts, heard, cleared)
        assert (await direct.post(reset.resume)).status_code == 200
        await until_awaited(lambda: _ready(client))
        measured(f"empty {took:.2f} s later, the engine silent for {_QUIET_SECONDS:g} s more")
        await _goes_on(client, prompts, heard, cleared)


def _prompts(seed: str) -> list[list[int]]:
    return [drawn(Random(f"{seed} {number}"), _TOKENS) for number in range(3)]


async def _warm(client: httpx2.AsyncClient, prompts: list[list[int]]) -> None:
    """Have the prompts cached, by the engine's own word."""
    for prompt in prompts:
        await ask(client, {"prompt": prompt})
        again = await ask(client, {"prompt": prompt})
        assert again.overlap == again.cached == usable(_TOKENS)


async def _stays_empty(
    client: httpx2.AsyncClient, prompts: list[list[int]], heard: Listener, cleared: int
) -> None:
    """Watch the engine say nothing, and the view stay empty without its word."""
    await asyncio.sleep(_QUIET_SECONDS)
    assert len(heard.events("AllBlocksCleared")) == cleared
    assert await _nothing_claimed(client, prompts)


async def _goes_on(
    client: httpx2.AsyncClient, prompts: list[list[int]], heard: Listener, cleared: int
) -> None:
    """The engine tells of its reset with a step; what came after it is held, and nothing else ever again."""
    first, *others = prompts
    fresh = await ask(client, {"prompt": first})
    assert (fresh.overlap, fresh.cached) == (0, 0)
    await until_awaited(lambda: _told(heard, cleared))
    again = await ask(client, {"prompt": first})
    assert again.overlap == again.cached == usable(_TOKENS)
    assert await _nothing_claimed(client, others)
    late = [await ask(client, {"prompt": prompt}) for prompt in others]
    assert [(each.overlap, each.cached) for each in late] == [(0, 0)] * len(others)


async def _told(heard: Listener, cleared: int) -> bool:
    return len(heard.events("AllBlocksCleared")) > cleared


async def _nothing_claimed(client: httpx2.AsyncClient, prompts: list[list[int]]) -> bool:
    return not any([await _claimed(client, prompt) for prompt in prompts])


async def _claimed(client: httpx2.AsyncClient, prompt: list[int]) -> int:
    return sum((await claims(client, {"prompt": prompt})).values())


async def _ready(client: httpx2.AsyncClient) -> bool:
    rows = (await client.get("/workers")).json()["workers"]
    return all(row["state"] == "ready" for row in rows)
