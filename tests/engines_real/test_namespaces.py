"""What is apart in the engine's cache is apart in the view: salts and adapters, by either kind of hash."""

from __future__ import annotations

from functools import partial
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines_real.asking import are_claimed, ask, calling, usable
from tests.engines_real.engine import MODELS
from tests.engines_real.front import routing
from tests.engines_real.listener import listening
from tests.engines_real.model import ADAPTER, NAME
from tests.engines_real.traffic import drawn
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.engines_real.engine import Engine

_TOKENS = 200
_LATE = "late-adapter"
# Which of the two engines, and how its blocks are named.
NAMES = pytest.mark.parametrize(("which", "kind"), [(0, int), (1, bytes)], ids=["numbers", "digests"])


@NAMES
async def test_one_prompt_under_every_salt_and_adapter_is_as_many_prompts(
    pair: list[Engine], which: int, kind: type, measured: Callable[[str], None]
) -> None:
    engine, prompt = pair[which], drawn(Random(f"namespaces {which}"), _TOKENS)
    spaces: list[dict[str, Any]] = [
        {"model": model} | ({"cache_salt": salt} if salt else {})
        for model, salt in product((NAME, ADAPTER), ("", "tenant-a", "tenant-b"))
    ]
    async with listening(engine.plan.events) as heard, routing([engine.url], predicts=False) as client:
        for body in (space | {"prompt": prompt} for space in spaces):
            first = await ask(client, body)
            await until_awaited(partial(are_claimed, client, body, usable(_TOKENS)))
            again = await ask(client, body)
            assert (first.overlap, first.cached) == (0, 0)
            assert again.overlap == again.cached == usable(_TOKENS)
    named = [block for event in heard.events("BlockStored") for block in event["block_hashes"]]
    assert {type(block) for block in named} == {kind}
    assert len(set(named)) >= len(spaces) * (_TOKENS // 32)
    measured(f"{len(spaces)} namespaces, {len(set(named))} blocks named by {kind.__name__}")


async def test_chats_are_apart_by_salt_and_adapter_too(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    chat = {"messages": [{"role": "user", "content": "salt and pepper are never of one shaker " * 15}]}
    salts: list[dict[str, Any]] = [{}, {"cache_salt": "chat-a"}, {"cache_salt": "chat-b"}, {"model": ADAPTER}]
    async with routing([pair[0].url], predicts=False) as client:
        for body in (chat | salt for salt in salts):
            first = await ask(client, body)
            held = usable(first.prompt_tokens)
            await until_awaited(partial(are_claimed, client, body, held))
            again = await ask(client, body)
            assert (first.overlap, first.cached, again.overlap, again.cached) == (0, 0, held, held)
    measured(f"{len(salts)} namespaces of a chat")


async def test_an_adapter_that_is_loaded_while_the_engine_runs_has_a_cache_of_its_own(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    engine, prompt = pair[0], drawn(Random("late"), _TOKENS)
    body, adapter = {"model": _LATE, "prompt": prompt}, {"lora_name": _LATE}
    async with (
        routing([engine.url], predicts=False) as client,
        calling(engine.url) as direct,
    ):
        await ask(client, {"prompt": prompt})
        path = {"lora_path": str(MODELS / "adapter")}
        assert (await direct.post("/v1/load_lora_adapter", json=adapter | path)).status_code == 200
        await until_awaited(lambda: _served(client))
        first = await ask(client, body)
        await until_awaited(partial(are_claimed, client, body, usable(_TOKENS)))
        again = await ask(client, body)
        assert (await direct.post("/v1/unload_lora_adapter", json=adapter)).status_code == 200
        await until_awaited(lambda: _not_served(client))
    assert (first.overlap, first.cached) == (0, 0)
    assert again.overlap == again.cached == usable(_TOKENS)
    measured("found, and found gone again")


async def _served(client: httpx2.AsyncClient) -> bool:
    return _LATE in [model["id"] for model in (await client.get("/v1/models")).json()["data"]]


async def _not_served(client: httpx2.AsyncClient) -> bool:
    return not await _served(client)
