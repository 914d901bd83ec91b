"""Two routers before one fleet, with a real Redis between them, and without it."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2

from tests.e2e.asking import ask, rows
from tests.e2e.processes import fleet, joined, router
from tests.share.server import RedisServer, redis_server
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

BODY = {"model": "stand-in", "prompt": list(range(1, 40))}


@asynccontextmanager
async def replicas() -> AsyncIterator[tuple[RedisServer, list[httpx2.AsyncClient]]]:
    """Run two routers, the second one of two processes, and a server that starts after the first."""
    async with AsyncExitStack() as stack:
        workers = await stack.enter_async_context(fleet("--profile", "fast", count=2))
        urls = [worker["url"] for worker in workers.workers]
        server = RedisServer()
        stack.push_async_callback(server.kill)
        clients = []
        for options in ((), ("--processes", "2")):
            front = await stack.enter_async_context(router(urls, "--share", server.url, *options))
            client = httpx2.AsyncClient(base_url=front.url, timeout=30.0)
            clients.append(await stack.enter_async_context(client))
            await joined(client, 2)
        await server.start()
        yield server, clients


async def shared(client: httpx2.AsyncClient) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get("/workers")).json()["share"]
    return found


async def active(client: httpx2.AsyncClient) -> int:
    """Return the running requests that policies see."""
    answer = await client.post("/explain", json=BODY)
    return sum(row["active_requests"] for row in answer.json()["candidates"])


async def told(client: httpx2.AsyncClient) -> int:
    """Return the running requests that other routers have told of."""
    return sum([row["peers_requests"] for row in (await rows(client)).values()])


async def test_two_routers_see_each_others_load_and_do_without_when_they_cannot() -> None:
    async with replicas() as (server, (one, two)):

        async def meet() -> bool:
            return all([(await shared(client))["routers"] == 1 for client in (one, two)])

        await until_awaited(meet, "the routers to hear each other")
        streams = [
            asyncio.create_task(ask(str(one.base_url), prompt=[7], max_tokens=100_000)) for _ in range(3)
        ]
        await all_see((one, two), 3)
        own = [row["inflight_requests"] for row in (await rows(two)).values()]
        assert (await told(one), await told(two), sum(own)) == (0, 3, 0)

        await server.kill()
        await until_awaited(partial(hears, two, 0), "the other's load to count no longer")
        await all_see([two], 3)  # by the engines' own word
        row = await shared(two)
        assert (row["connected"], row["routers"]) == (False, 0)
        assert "kv_router_share_connected 0.0" in (await two.get("/metrics")).text
        assert (await two.post("/v1/completions", json=BODY | {"max_tokens": 1})).status_code == 200

        await server.start()
        await until_awaited(partial(hears, two, 3), "the other's load to count again")

        async def connected() -> bool:
            return bool((await shared(two))["connected"])

        await until_awaited(connected, "a router that tells again")
        for task in streams:
            task.cancel()
        await all_see((one, two), 0)


async def test_who_watches_sees_what_other_routers_have_there() -> None:
    async with replicas() as (_, (one, two)):
        streams = [
            asyncio.create_task(ask(str(client.base_url), prompt=[7], max_tokens=100_000))
            for client in (one, two, two)
        ]
        for client, others in ((one, 2), (two, 1)):
            await until_awaited(partial(watches, client, others), f"{others} requests of the other router")
        for task in streams:
            task.cancel()


async def watches(client: httpx2.AsyncClient, requests: int) -> bool:
    """Whether GET /watch shows so many requests of other routers."""
    async with client.stream("GET", "/watch") as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                rows = json.loads(line[6:])["workers"]
                return bool(sum(row["peers_requests"] for row in rows) == requests)
    return False


async def all_see(clients: Iterable[httpx2.AsyncClient], requests: int) -> None:
    """Wait until every router sees so many."""
    for client in clients:
        await until_awaited(partial(sees, client, requests), f"{requests} requests")


async def hears(client: httpx2.AsyncClient, requests: int) -> bool:
    return await told(client) == requests


async def sees(client: httpx2.AsyncClient, requests: int) -> bool:
    return await active(client) == requests


async def test_what_one_router_has_sent_is_expected_to_be_cached_by_the_other() -> None:
    async with redis_server() as server, AsyncExitStack() as stack:
        clients = []
        # Workers without events: nobody knows what they hold but who has sent it there.
        workers = await stack.enter_async_context(fleet("--no-events", count=2))
        urls = [worker["url"] for worker in workers.workers]
        for _ in range(2):
            front = await stack.enter_async_context(router(urls, "--share", server.url))
            client = httpx2.AsyncClient(base_url=front.url, timeout=30.0)
            clients.append(await stack.enter_async_context(client))
            await joined(client, 2)
        one, two = clients

        async def meet() -> bool:
            return all([(await shared(client))["routers"] == 1 for client in clients])

        await until_awaited(meet, "the routers to hear each other")
        answer = await one.post("/v1/completions", json=BODY | {"max_tokens": 1})
        chosen = answer.headers["x-kv-router-worker"]

        async def believed() -> bool:
            found = (await two.post("/explain", json=BODY)).json()
            held = {row["worker"] for row in found["candidates"] if row["predicted_tokens"]}
            return bool(held == {chosen} == {found["chosen"]["worker"]})

        await until_awaited(believed, "the prediction to be heard")
