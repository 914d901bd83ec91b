"""Weights that somebody else changes while the engine takes requests: their version is all that shows it."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from tests.engines_real.asking import ask, calling, claimed, nothing_claimed, store, usable
from tests.engines_real.front import routing
from tests.engines_real.traffic import several
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.engines_real.engine import Engine

_TOKENS = 300
# A few probes, and time for a busy machine.
_SEEN_SECONDS = 10.0
# Of a late clear between two probes nobody can say whether it was for weights that change then, too.
_TWO_PROBES_SECONDS = 2.0


async def test_weights_that_others_change_empty_the_view_although_the_engine_says_nothing(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    engine, prompts = pair[0], several("weights of others", 3, _TOKENS)
    held = [usable(_TOKENS)] * len(prompts)
    update = [
        ("/reset_prefix_cache", {}),
        ("/start_weight_update", {}),
        ("/update_weights", {"update_info": {"factor": 1.0}}),
        ("/finish_weight_update", {"weight_version": "of others"}),
    ]
    async with routing([engine.url], predicts=False) as client, calling(engine.url) as direct:
        await store(engine.url, prompts)

        async def are_held() -> bool:
            return await claimed(client, prompts) == held

        await until_awaited(are_held)
        await asyncio.sleep(_TWO_PROBES_SECONDS)
        for path, body in update:
            assert (await direct.post(path, json=body)).status_code == 200
        began = time.monotonic()
        await until_awaited(lambda: nothing_claimed(client, prompts), "an empty view", _SEEN_SECONDS)
        took = time.monotonic() - began
        answers = [await ask(client, {"prompt": prompt}) for prompt in prompts]
    assert {(each.overlap, each.cached) for each in answers} == {(0, 0)}
    measured(f"empty {took:.2f} s later")
