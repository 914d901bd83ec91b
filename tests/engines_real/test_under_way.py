"""Requests that are being answered when an engine is paused: how they end, what is held then and after."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.engines_real.asking import ask, calling, nothing_claimed, usable
from tests.engines_real.front import act, all_ready, routing
from tests.engines_real.listener import Listener, listening
from tests.engines_real.test_pauses import goes_on, warm
from tests.engines_real.traffic import several
from tests.engines_real.underway import UnderWay, under_way
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import httpx2

    from tests.engines_real.engine import Engine

_TOKENS, _WANTED = 300, 240
_SETTLE_SECONDS, _QUIET_SECONDS = 2.0, 8.0
_ANSWER_SECONDS = 120.0
_SYNC = {"update": {"update_info": {"factor": 1.0}}}


@dataclass(slots=True)
class Scene:
    """An engine that holds prompts `held` and is answering others, seen through the router and beside it."""

    client: httpx2.AsyncClient
    direct: httpx2.AsyncClient
    heard: Listener
    held: list[list[int]]
    runs: list[UnderWay]
    cleared: int

    @property
    def prompts(self) -> list[list[int]]:
        return [*self.held, *(run.prompt for run in self.runs)]

    async def is_empty(self) -> bool:
        return await nothing_claimed(self.client, self.prompts)

    async def stays_empty(self) -> None:
        """Watch nothing happen: no token, no word of the engine, no claim."""
        await asyncio.sleep(_SETTLE_SECONDS)
        before = [run.tokens for run in self.runs], len(self.heard.batches)
        await asyncio.sleep(_QUIET_SECONDS)
        assert ([run.tokens for run in self.runs], len(self.heard.batches)) == before
        assert self.heard.clears() == self.cleared
        assert await self.is_empty()


@asynccontextmanager
async def answering(engine: Engine, seed: str) -> AsyncIterator[Scene]:
    """Have an engine in the middle of three answers; they have all ended when the block has."""
    held, others = several(f"{seed} held", 2, _TOKENS), several(f"{seed} asked", 3, _TOKENS)
    async with (
        routing([engine.url]) as client,
        listening(engine.plan.events) as heard,
        calling(engine.url) as direct,
    ):
        await warm(client, held)
        async with under_way(client, others, _WANTED) as runs:
            yield Scene(client, direct, heard, held, runs, heard.clears())


@pytest.mark.parametrize("call", ["/pause?mode=keep", "/sleep?level=1&mode=keep"], ids=["pause", "sleep"])
async def test_requests_that_a_pause_keeps_are_answered_to_the_end_and_only_they_are_held_again(
    pair: list[Engine], call: str, measured: Callable[[str], None]
) -> None:
    async with answering(pair[1], f"keep {call}") as scene:
        assert (await scene.direct.post(call)).status_code == 200
        await until_awaited(scene.is_empty)
        await scene.stays_empty()
        stood = [run.tokens for run in scene.runs]
        assert max(stood) < _WANTED
        await _let_go_on(scene, call)
        await _came_whole(scene)
        await _holds_just_what_it_answered(scene)
    measured(f"stood at {stood} of {_WANTED} tokens, all came; the view was empty meanwhile")


@pytest.mark.parametrize("call", ["/pause", "/sleep?level=1"], ids=["pause", "sleep"])
async def test_requests_that_a_pause_aborts_end_and_nothing_of_them_is_held(
    pair: list[Engine], call: str, measured: Callable[[str], None]
) -> None:
    async with answering(pair[1], f"abort {call}") as scene:
        assert (await scene.direct.post(call)).status_code == 200
        await _ended(scene, "abort")
        assert max(run.tokens for run in scene.runs) < _WANTED
        await _stays_empty_and_goes_on(scene, call)
    measured(f"ended at {[run.tokens for run in scene.runs]} of {_WANTED} tokens; the view stayed empty")


async def test_a_pause_that_waits_for_requests_leaves_the_view_empty_once_they_have_ended(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    async with answering(pair[1], "wait") as scene:
        call = "/pause?mode=wait"
        assert (await scene.direct.post(call)).status_code == 200
        await _came_whole(scene)
        await _stays_empty_and_goes_on(scene, call)
    measured(f"all {_WANTED} tokens of each came first")


async def test_requests_under_way_outlast_a_weight_sync_and_only_they_are_held_again(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    async with answering(pair[0], "sync") as scene:
        await act(scene.client, "weight_sync", _SYNC)
        assert await nothing_claimed(scene.client, scene.held)
        stood = [run.tokens for run in scene.runs]
        assert max(stood) < _WANTED
        await _came_whole(scene)
        await _holds_just_what_it_answered(scene)
    measured(f"at {stood} of {_WANTED} tokens when it had ended, all came")


async def _let_go_on(scene: Scene, call: str) -> None:
    """End what a call has begun, a pause or a sleep."""
    assert (await scene.direct.post("/resume" if "pause" in call else "/wake_up")).status_code == 200
    await until_awaited(lambda: all_ready(scene.client))


async def _stays_empty_and_goes_on(scene: Scene, call: str) -> None:
    """Nothing that had been held or was under way before the call is held after it."""
    await until_awaited(scene.is_empty)
    await scene.stays_empty()
    await _let_go_on(scene, call)
    await goes_on(scene.client, scene.prompts, scene.heard, scene.cleared)


async def _came_whole(scene: Scene) -> None:
    await _ended(scene, "length")
    assert [run.tokens for run in scene.runs] == [_WANTED] * len(scene.runs)


async def _ended(scene: Scene, why: str) -> None:
    async def all_ended() -> bool:
        return all(run.finish for run in scene.runs)

    await until_awaited(all_ended, "the ends of the answers", _ANSWER_SECONDS)
    assert [run.finish for run in scene.runs] == [why] * len(scene.runs)


async def _holds_just_what_it_answered(scene: Scene) -> None:
    """What stood in the queue was computed anew after the reset; all else is gone."""
    await until_awaited(lambda: scene.heard.has_cleared(scene.cleared + 1))
    await scene.heard.silence(1.0)
    assert await nothing_claimed(scene.client, scene.held)
    again = [await ask(scene.client, {"prompt": run.prompt}) for run in scene.runs]
    assert {(each.overlap, each.cached) for each in again} == {(usable(_TOKENS), usable(_TOKENS))}
    late = [await ask(scene.client, {"prompt": prompt}) for prompt in scene.held]
    assert [(each.overlap, each.cached) for each in late] == [(0, 0)] * len(late)
