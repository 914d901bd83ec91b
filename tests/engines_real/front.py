"""The router, as its operator starts it, in front of real engines."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from tests.e2e.processes import joined, router
from tests.engines_real.asking import calling
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import httpx2

KEY = "a-key-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {KEY}"}
# Engines and router share two cores: the tests' own twenty probes a second would take one of them.
_OPTIONS = ("--probe-seconds", "0.5", "--admin-key", KEY, "--allow-policy-header", "on")
_NO_PREDICTIONS = ("--predicted-ttl-seconds", "0")
# To read a real tokenizer, beside engines that have just started.
_JOIN_SECONDS = 180.0


@asynccontextmanager
async def routing(
    workers: Sequence[str], *options: str, history: bool = True, predicts: bool = True
) -> AsyncIterator[httpx2.AsyncClient]:
    """Run the router in front of workers, all of them joined; yields a client of it.

    `history`: the engines keep one, and it has been read. `predicts`: what has been sent to a worker
    counts as held there before it says so; without, all that is claimed has been heard.
    """
    async with (
        router(workers, *_OPTIONS, *options, *([] if predicts else _NO_PREDICTIONS)) as front,
        calling(front.url) as client,
    ):
        await joined(client, len(workers), _JOIN_SECONDS)
        if history:
            await until_awaited(lambda: _all_live(client), "live views", _JOIN_SECONDS)
        yield client


async def _all_live(client: httpx2.AsyncClient) -> bool:
    rows = (await client.get("/workers")).json()["workers"]
    return all(rank["view"] == "live" for row in rows for rank in row["ranks"])


async def all_ready(client: httpx2.AsyncClient) -> bool:
    """Whether every worker takes requests."""
    rows = (await client.get("/workers")).json()["workers"]
    return all(row["state"] == "ready" for row in rows)


async def act(client: httpx2.AsyncClient, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Carry out an admin call, which must succeed."""
    answer = await client.post(f"/admin/{path}", json=body or {}, headers=BEARER)
    assert answer.status_code == 200, answer.text
    done: dict[str, Any] = answer.json()
    return done
