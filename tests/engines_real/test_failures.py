"""Engines that die, routers that restart, and a network that is cut between them."""

from __future__ import annotations

import time
from random import Random
from typing import TYPE_CHECKING, Any

from tests.engines_real.asking import ask, claimed, claims, nothing_claimed, store, usable
from tests.engines_real.cable import cable
from tests.engines_real.front import act, routing
from tests.engines_real.plans import BYTES, INTS, RANKS
from tests.engines_real.traffic import drawn, several
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.engines_real.engine import Engine
    from tests.engines_real.engines import Engines

_TOKENS = 300
_PROMPTS = 20
_NOTICED_SECONDS = 60.0
_MOST_WRONG = 5  # after so many in a row the router begins anew


def prompts(seed: int, count: int = _PROMPTS) -> list[list[int]]:
    return several(str(seed), count, _TOKENS)


async def test_a_router_that_restarts_knows_what_it_knew(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    bodies = [{"prompt": prompt, "max_tokens": 2} for prompt in prompts(21)]
    urls = [engine.url for engine in pair]
    async with routing(urls) as client:
        for body in bodies:
            await ask(client, body)
        before = [await claims(client, body) for body in bodies]
    async with routing(urls) as client:
        after = [await claims(client, body) for body in bodies]
        answers = [await ask(client, body) for body in bodies]
    held = sum(sum(each.values()) for each in after)
    measured(f"{held} tokens of {len(bodies)} prompts claimed before, the same after")
    assert after == before
    assert {(each.overlap, each.cached) for each in answers} == {(usable(_TOKENS), usable(_TOKENS))}


async def test_what_a_cut_has_lost_is_fetched_from_the_history(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    engine, others = pair[0], prompts(22)
    async with (
        cable(INTS.events) as line,
        routing([f"{engine.url},kv=tcp://127.0.0.1:{line.port}"]) as client,
    ):
        await ask(client, {"prompt": prompts(23)[0]})
        line.cut()
        await store(engine.url, others)
        assert await claimed(client, others) == [0] * len(others)
        line.mend()
        began = time.monotonic()
        await until_awaited(lambda: _all_claimed(client, others))
        took = time.monotonic() - began
        rank = await _rank(client)
        assert (rank["view"], rank["lost_gaps"]) == ("live", 0)
        answers = [await ask(client, {"prompt": prompt}) for prompt in others]
    assert {(each.overlap, each.cached) for each in answers} == {(usable(_TOKENS), usable(_TOKENS))}
    measured(f"{len(others)} prompts of others known {took:.1f} s after the end of the cut")


async def test_a_connection_that_dies_without_a_word_is_noticed(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    engine, others = pair[0], prompts(27, 5)
    async with (
        cable(INTS.events) as line,
        routing([f"{engine.url},kv=tcp://127.0.0.1:{line.port}"], predicts=False) as client,
    ):
        await store(engine.url, others[:1])
        await until_awaited(lambda: _all_claimed(client, others[:1]))
        line.go_dead()
        await store(engine.url, others)
        began = time.monotonic()
        await until_awaited(lambda: _all_claimed(client, others), "the events", _NOTICED_SECONDS)
        took = time.monotonic() - began
    measured(f"{len(others)} prompts of others known {took:.0f} s later")


async def test_what_was_on_its_way_when_the_view_was_emptied_brings_nothing_back(
    pair: list[Engine], measured: Callable[[str], None]
) -> None:
    engine, warm, late = pair[0], prompts(28, 2), prompts(29, 4)
    async with (
        cable(INTS.events) as line,
        routing([f"{engine.url},kv=tcp://127.0.0.1:{line.port}"], predicts=False) as client,
    ):
        await store(engine.url, warm)
        await until_awaited(lambda: _all_claimed(client, warm))
        line.hold()
        await store(engine.url, late)
        await act(client, f"workers/{engine.url}/flush")
        assert await nothing_claimed(client, warm + late)
        line.let_go()
        await store(engine.url, warm[:1])  # its events come behind those
        await until_awaited(lambda: _all_claimed(client, warm[:1]))
        assert await nothing_claimed(client, late)
        answers = [await ask(client, {"prompt": prompt}) for prompt in late]
    assert {(each.overlap, each.cached) for each in answers} == {(0, 0)}
    measured(f"the events of {len(late)} prompts came after the flush")


async def test_without_a_history_a_cut_shows_and_what_is_claimed_wrongly_is_soon_given_up(
    ranks: Engine, measured: Callable[[str], None]
) -> None:
    known, others = prompts(24, 8), prompts(26, 16)
    async with cable(RANKS.events) as line, cable(RANKS.events + 1) as other:
        kv = "|".join(f"tcp://127.0.0.1:{each.port}" for each in (line, other))
        async with routing([f"{ranks.url},kv={kv}"], history=False) as client:
            await store(ranks.url, known[:1])  # its events say that the subscription stands
            await until_awaited(lambda: _all_claimed(client, known[:1]))
            await store(ranks.url, known)
            await until_awaited(lambda: _all_claimed(client, known))
            line.cut()
            await store(ranks.url, others)  # there is room for 13
            line.mend()
            await until_awaited(lambda: _degraded(client, ranks.url))
            answers = [await ask(client, {"prompt": prompt}) for prompt in known * 2]
    wrong = [each.overlap > each.cached for each in answers]
    measured(f"{sum(wrong)} of {len(wrong)} claims too high")
    assert sum(wrong) <= _MOST_WRONG
    assert not any(wrong[len(known) :])


async def test_an_engine_that_is_killed_and_started_anew_on_its_ports_has_an_empty_view(
    engines: Engines, measured: Callable[[str], None]
) -> None:
    alive, victim = engines.have(INTS, BYTES)
    bodies = [{"prompt": prompt, "max_tokens": 2} for prompt in prompts(25)]
    async with routing([alive.url, victim.url]) as client:
        for body in bodies:
            await ask(client, body)
        held = [body for body in bodies if (await claims(client, body))[victim.url, 0]]
        assert held
        victim.kill()
        while_dead = [await ask(client, body) for body in bodies]
        assert {each.worker for each in while_dead} == {alive.url}
        engines.have(INTS, BYTES)
        await until_awaited(lambda: _up(client, victim.url))
        assert [(await claims(client, body))[victim.url, 0] for body in held] == [0] * len(held)
        await store(victim.url, prompts(25)[:1])
        await until_awaited(lambda: _has_learnt(client, bodies[0], victim.url))
    async with routing([victim.url]) as client:
        first = [await ask(client, body) for body in held]
        again = [await ask(client, body) for body in held]
    assert {
        (each.overlap, each.cached) for each, body in zip(first, held, strict=True) if body is not bodies[0]
    } == {(0, 0)}
    assert {(each.overlap, each.cached) for each in again} == {(usable(_TOKENS), usable(_TOKENS))}
    measured(f"{len(bodies)} requests answered meanwhile; {len(held)} prompts forgotten, learnt again")


async def _has_learnt(client: httpx2.AsyncClient, body: dict[str, Any], url: str) -> bool:
    return (await claims(client, body))[url, 0] == usable(_TOKENS)


async def _all_claimed(client: httpx2.AsyncClient, prompts: list[list[int]]) -> bool:
    return await claimed(client, prompts) == [usable(_TOKENS)] * len(prompts)


async def _degraded(client: httpx2.AsyncClient, url: str) -> bool:
    await store(url, [drawn(Random(), _TOKENS)])
    return bool((await _rank(client))["view"] == "degraded")


async def _rank(client: httpx2.AsyncClient) -> dict[str, Any]:
    [worker] = (await client.get("/workers")).json()["workers"]
    rank: dict[str, Any] = worker["ranks"][0]
    return rank


async def _up(client: httpx2.AsyncClient, url: str) -> bool:
    rows = (await client.get("/workers")).json()["workers"]
    return any(row["url"] == url and row["state"] == "ready" for row in rows)
