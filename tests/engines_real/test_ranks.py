"""Two ranks in one server, each with a small cache of its own and no history of its events."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.engines_real.asking import are_claimed, ask, claims, store, usable
from tests.engines_real.engine import BLOCK_SIZE
from tests.engines_real.front import routing
from tests.engines_real.listener import listening
from tests.engines_real.plans import RANKS, ROOM_BLOCKS
from tests.engines_real.traffic import drawn
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx2

    from tests.engines_real.engine import Engine
    from tests.engines_real.listener import Listener

_DOCUMENTS, _REQUESTS, _TOKENS = 40, 160, 320
_COPIES = 3
# Events of the last step may come after its answer: in three runs of 160 requests at once after each other
# two, one and none were promised what had just been evicted. In six with 0.1 s between them, none.
_SILENCE_SECONDS = 0.4


async def test_requests_go_to_the_rank_that_was_chosen_and_evictions_are_followed(
    ranks: Engine, measured: Callable[[str], None]
) -> None:
    chance = Random(11)
    documents = [drawn(chance, _TOKENS) for _ in range(_DOCUMENTS)]
    before = ranks.metric("vllm:prefix_cache_queries_total")
    async with (
        listening(RANKS.events) as first,
        listening(RANKS.events + 1) as second,
        routing([ranks.url], history=False) as client,
    ):
        bodies = [{"prompt": chance.choice(documents), "max_tokens": 2} for _ in range(_REQUESTS)]
        answers = []
        for body in bodies:
            answers.append(await ask(client, body))
            await asyncio.gather(first.silence(_SILENCE_SECONDS), second.silence(_SILENCE_SECONDS))
        removed = len(first.events("BlockRemoved")) + len(second.events("BlockRemoved"))
    sent: Counter[str] = Counter()
    for each in answers:
        sent[str(each.rank)] += each.prompt_tokens
    after = ranks.metric("vllm:prefix_cache_queries_total")
    right = sum(each.overlap == each.cached for each in answers)
    measured(f"cached tokens foretold on {right} of {len(answers)} over {removed} evictions")
    assert {rank: after[rank] - before[rank] for rank in after} == dict(sent)
    assert len(sent) == RANKS.ranks
    assert removed > ROOM_BLOCKS
    assert right >= 0.99 * len(answers)


async def test_a_block_that_is_there_several_times_is_held_until_its_last_copy_is_gone(
    ranks: Engine, measured: Callable[[str], None]
) -> None:
    chance = Random(14)
    # Less than a block is found nowhere: each request fills one of its own, all of them in one step.
    start = drawn(chance, BLOCK_SIZE // 2)
    seen: list[int] = []
    async with listening(RANKS.events) as heard, routing([ranks.url], history=False) as client:
        # Its events say that the subscription stands.
        await store(ranks.url, [other := drawn(chance, _TOKENS)])
        await until_awaited(lambda: are_claimed(client, {"prompt": other}, usable(_TOKENS)))
        filled = await store(ranks.url, [start] * _COPIES, answer=BLOCK_SIZE)
        assert filled == [filled[0]] * _COPIES
        prompt = start + filled[0]
        while not seen or seen[-1]:
            await heard.silence(_SILENCE_SECONDS)
            await until_awaited(lambda: _agrees(client, heard, prompt))
            seen.append(_copies(heard, prompt))
            # One full block: it evicts one at a time.
            await store(ranks.url, [drawn(chance, BLOCK_SIZE - 1)])
    measured(f"{max(seen)} copies evicted one by one, claimed until the last was")
    assert list(dict.fromkeys(seen)) == list(range(_COPIES, -1, -1))


async def test_a_request_that_reports_its_hits_tells_a_router_without_history_what_is_held(
    ranks: Engine, measured: Callable[[str], None]
) -> None:
    prompt = drawn(Random(13), _TOKENS)
    body = {"prompt": prompt}
    for rank in range(RANKS.ranks):
        await store(ranks.url, [prompt], rank)
    async with routing([ranks.url], history=False, predicts=False) as client:
        silent = await ask(client, body)
        assert (silent.overlap, silent.cached) == (0, usable(_TOKENS))
        # A prediction ends at once, and is gone with the next round of the clock.
        await until_awaited(partial(are_claimed, client, body, 0))
        told = await ask(client, body | {"vllm_xargs": {"kv_cache_report_mode": "full"}})
        assert (told.overlap, told.cached) == (0, usable(_TOKENS))
        await until_awaited(partial(are_claimed, client, body, usable(_TOKENS)))
        claimed = await claims(client, body)
        assert claimed.pop((ranks.url, told.rank)) == usable(_TOKENS)
        assert set(claimed.values()) == {0}
    measured(f"{usable(_TOKENS)} tokens unknown before, claimed after")


def _copies(heard: Listener, prompt: list[int]) -> int:
    """Return how many copies of a prompt's first block there are by the engine's events."""
    first = prompt[:BLOCK_SIZE]
    stored = [event for event in heard.events("BlockStored") if event["token_ids"][:BLOCK_SIZE] == first]
    if not stored:
        return 0
    name = stored[0]["block_hashes"][0]
    return len(stored) - sum(name in event["block_hashes"] for event in heard.events("BlockRemoved"))


async def _agrees(client: httpx2.AsyncClient, heard: Listener, prompt: list[int]) -> bool:
    """Whether rank 0 is believed to hold the prompt's beginning just if the engine does."""
    claimed = (await claims(client, {"prompt": prompt}))[RANKS.url, 0]
    return (claimed > 0) == (_copies(heard, prompt) > 0)
