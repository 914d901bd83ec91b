"""Caches that are emptied while the engine says nothing: the view is empty at once, and stays so.

A vLLM publishes inside its steps only. One that is idle or paused tells of a reset with the next request,
which may be minutes away; by then the view has to hold what came after the reset, and nothing from before.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines_real.asking import COMPLETION, ask, calling, claimed, nothing_claimed, store, usable
from tests.engines_real.front import act, all_ready, routing
from tests.engines_real.listener import listening
from tests.engines_real.model import NAME
from tests.engines_real.traffic import several
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    import httpx2

    from tests.engines_real.engine import Engine
    from tests.engines_real.listener import Listener

_TOKENS = 300
# For so long an engine is watched to say nothing, and once for minutes.
_QUIET_SECONDS, _MINUTES_SECONDS, _LOOK_SECONDS = 10.0, 150.0, 10.0
_SEEN_SECONDS = 10.0  # a few probes, and time for a busy machine
_HALF, _BACK = 0.5, 2.0  # factors of weights, exact whatever they are


@dataclass(frozen=True, slots=True)
class Reset:
    """A call to the engine that empties its cache, and what lets it go on."""

    name: str
    call: str
    resume: str


BY_OTHERS = [
    Reset("a pause that keeps requests", "/pause?mode=keep", "/resume"),
    Reset("a pause that aborts them", "/pause", "/resume"),
    Reset("a sleep of level 1", "/sleep?level=1", "/wake_up"),
    Reset("a sleep of level 2", "/sleep?level=2", "/wake_up"),
]


def name(reset: Reset) -> str:
    return reset.name.replace(" ", "_")


async def test_a_flush_of_an_idle_engine_empties_the_view_before_it_is_answered(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    engine, prompts = pair[0], several("flush", 3, _TOKENS)
    async with routing([engine.url]) as client, listening(engine.plan.events) as heard:
        await warm(client, prompts)
        cleared = heard.clears()
        await act(client, f"workers/{engine.url}/flush")
        assert await nothing_claimed(client, prompts)
        await _stays_empty(client, prompts, [heard])
        await goes_on(client, prompts, heard, cleared)
    measured(f"empty at once, the engine said nothing for {_QUIET_SECONDS:g} s more")


async def test_a_weight_sync_changes_what_the_engine_answers_and_empties_the_view(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    engine, [asked, *prompts] = pair[0], several("sync", 4, _TOKENS)
    async with (
        routing([engine.url]) as client,
        listening(engine.plan.events) as heard,
        calling(engine.url) as direct,
    ):
        before = await _logprobs(direct, asked)
        await warm(client, prompts)
        cleared = heard.clears()
        await act(client, "weight_sync", _update(_HALF, "step-1"))
        assert await nothing_claimed(client, [asked, *prompts])
        assert (await direct.get("/weight_info")).json()["weight_version"] == "step-1"
        await _stays_empty(client, prompts, [heard])
        changed = await _logprobs(direct, asked)
        await goes_on(client, prompts, heard, cleared)
        await act(client, "weight_sync", _update(_BACK, "step-2"))
        assert await nothing_claimed(client, [asked, *prompts])
        assert await _logprobs(direct, asked) == pytest.approx(before, abs=1e-4)
    assert changed != pytest.approx(before, abs=0.01)
    measured(f"empty at once; log probability of an answer {before[0]:.2f}, then {changed[0]:.2f}, then back")


@pytest.mark.parametrize("reset", BY_OTHERS, ids=name)
async def test_what_others_empty_is_seen_by_asking_the_engine(
    pair: list[Engine], reset: Reset, measured: Callable[[str], None]
) -> None:
    engine, prompts = pair[1], several(reset.name, 3, _TOKENS)
    async with (
        routing([engine.url]) as client,
        listening(engine.plan.events) as heard,
        calling(engine.url) as direct,
    ):
        await warm(client, prompts)
        cleared, began = heard.clears(), time.monotonic()
        assert (await direct.post(reset.call)).status_code == 200
        await until_awaited(lambda: nothing_claimed(client, prompts), "an empty view", _SEEN_SECONDS)
        took = time.monotonic() - began
        await _stays_empty(client, prompts, [heard])
        assert (await direct.post(reset.resume)).status_code == 200
        await until_awaited(lambda: all_ready(client))
        await goes_on(client, prompts, heard, cleared)
    measured(f"empty {took:.2f} s later, the engine silent for {_QUIET_SECONDS:g} s more")


async def test_what_is_published_minutes_after_a_reset_takes_nothing_away_and_brings_nothing_back(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    """One engine is flushed while idle, through the router; the other is paused by somebody else."""
    urls, (old, new) = [engine.url for engine in pair], _halves(several("minutes", 6, _TOKENS))
    async with (
        routing(urls, predicts=False) as client,
        listening(pair[0].plan.events) as one,
        listening(pair[1].plan.events) as other,
    ):
        await _stored_everywhere(client, old, urls)
        await asyncio.gather(one.silence(1.0), other.silence(1.0))
        told = [len(heard.batches) for heard in (one, other)]
        async with _flushed_and_paused(client, *urls):
            await until_awaited(lambda: nothing_claimed(client, old))
            await _stays_empty(client, old, [one, other], _MINUTES_SECONDS)
        await _stored_everywhere(client, new, urls)
        for heard, before in zip((one, other), told, strict=True):
            late = [event["type"] for _, events in heard.batches[before:] for event in events]
            assert (late[0], late.count("AllBlocksCleared")) == ("AllBlocksCleared", 1)
        assert await nothing_claimed(client, old)
        async with routing(urls, predicts=False) as anew:  # what the history says is no other
            assert await _claimed_everywhere(anew, new, urls)
            assert await nothing_claimed(anew, old)
        await until_awaited(lambda: all_ready(client))
        answers = [await ask(client, {"prompt": prompt}) for prompt in [*old, *new]]
    held = [(0, 0)] * len(old) + [(usable(_TOKENS), usable(_TOKENS))] * len(new)
    assert [(each.overlap, each.cached) for each in answers] == held
    measured(f"two engines silent for {_MINUTES_SECONDS:g} s, then one clear each, before what is new")


@asynccontextmanager
async def _flushed_and_paused(client: httpx2.AsyncClient, flushed: str, paused: str) -> AsyncIterator[None]:
    """Empty an idle engine through the router, and another by a pause that lasts as long as the block."""
    await act(client, f"workers/{flushed}/flush")
    async with calling(paused) as direct:
        assert (await direct.post("/pause?mode=keep")).status_code == 200
        yield
        assert (await direct.post("/resume")).status_code == 200


async def warm(client: httpx2.AsyncClient, prompts: Sequence[list[int]]) -> None:
    """Have the prompts cached, by the engine's own word."""
    for prompt in prompts:
        await ask(client, {"prompt": prompt})
        again = await ask(client, {"prompt": prompt})
        assert again.overlap == again.cached == usable(_TOKENS)


async def goes_on(
    client: httpx2.AsyncClient, prompts: Sequence[list[int]], heard: Listener, cleared: int
) -> None:
    """The engine tells of its reset with a step; what came after it is held, and nothing else ever again."""
    first, *others = prompts
    fresh = await ask(client, {"prompt": first})
    assert (fresh.overlap, fresh.cached) == (0, 0)
    await until_awaited(lambda: heard.has_cleared(cleared + 1))
    again = await ask(client, {"prompt": first})
    assert again.overlap == again.cached == usable(_TOKENS)
    assert await nothing_claimed(client, others)
    late = [await ask(client, {"prompt": prompt}) for prompt in others]
    assert [(each.overlap, each.cached) for each in late] == [(0, 0)] * len(others)


async def _stays_empty(
    client: httpx2.AsyncClient,
    prompts: Sequence[list[int]],
    engines: Sequence[Listener],
    seconds: float = _QUIET_SECONDS,
) -> None:
    """Watch the engines say nothing, and the views stay empty without their word."""
    told, end = [heard.clears() for heard in engines], time.monotonic() + seconds
    while time.monotonic() < end:
        await asyncio.sleep(_LOOK_SECONDS)
        assert await nothing_claimed(client, prompts)
    assert [heard.clears() for heard in engines] == told


async def _logprobs(direct: httpx2.AsyncClient, prompt: list[int]) -> list[float]:
    """Return how sure the engine is of its answer to a prompt, token by token: its weights show in it."""
    body = {"model": NAME, "prompt": prompt, "max_tokens": 4, "temperature": 0, "logprobs": 1}
    answer = await direct.post(COMPLETION, json=body | {"ignore_eos": True})
    assert answer.status_code == 200, answer.text
    said: list[float] = answer.json()["choices"][0]["logprobs"]["token_logprobs"]
    return said


def _update(factor: float, version: str) -> dict[str, Any]:
    return {"update": {"update_info": {"factor": factor}, "weight_version": version}}


def _halves(prompts: list[list[int]]) -> tuple[list[list[int]], list[list[int]]]:
    middle = len(prompts) // 2
    return prompts[:middle], prompts[middle:]


async def _stored_everywhere(
    client: httpx2.AsyncClient, prompts: Sequence[list[int]], urls: Sequence[str]
) -> None:
    """Have others ask all engines for prompts, and wait until the router has heard of it."""
    for url in urls:
        await store(url, prompts)
    await until_awaited(lambda: _claimed_everywhere(client, prompts, urls))


async def _claimed_everywhere(
    client: httpx2.AsyncClient, prompts: Sequence[list[int]], urls: Sequence[str]
) -> bool:
    return await claimed(client, prompts) == [len(urls) * usable(_TOKENS)] * len(prompts)
