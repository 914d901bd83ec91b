"""Prefill and decode workers as processes of their own, and a router in front of them."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import httpx2

from tests.e2e.processes import Running, fleet, joined, router
from tests.waiting import until_awaited

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

PROMPT = [index % 250 + 1 for index in range(64)]
LONG = [index % 250 + 1 for index in range(4000)]  # two seconds of prefill at 70b-tp8
SLOW = ("--profile", "70b-tp8")


def body(**fields: Any) -> dict[str, Any]:
    return {"model": "stand-in", "prompt": PROMPT, "max_tokens": 8, **fields}


@dataclass(slots=True)
class Member:
    """One worker; those of a role may share a process."""

    url: str
    running: Running

    async def die(self) -> None:
        """Be killed as by a machine that loses power, and be gone."""
        self.running.kill()
        await self.running.process.wait()


@dataclass(slots=True)
class Pairs:
    """The workers by role, the router, and a client of it."""

    prefill: list[Member] = field(default_factory=list)
    decode: list[Member] = field(default_factory=list)
    both: list[Member] = field(default_factory=list)
    front: Running = field(init=False)
    client: httpx2.AsyncClient = field(init=False)

    def urls(self, role: str) -> list[str]:
        return [member.url for member in getattr(self, role)]

    async def rows(self) -> dict[str, dict[str, Any]]:
        return {row["url"]: row for row in (await self.client.get("/workers")).json()["workers"]}

    async def loads(self, role: str) -> list[tuple[int, int]]:
        """Return requests and tokens in flight by worker."""
        rows = await self.rows()
        return [(rows[url]["inflight_requests"], rows[url]["inflight_tokens"]) for url in self.urls(role)]

    async def idle(self) -> None:
        """Wait until the ledger is back at zero everywhere."""

        async def empty() -> bool:
            rows = (await self.rows()).values()
            return not any(row["inflight_requests"] or row["inflight_tokens"] for row in rows)

        await until_awaited(empty, "an empty ledger")

    async def rest(self) -> None:
        """Wait until no worker that lives has anything left to do, and the ledger says so."""
        await self.idle()
        for member in (*self.prefill, *self.decode, *self.both):
            if member.running.process.returncode is None:
                await until_awaited(partial(self._rests, member), "an idle worker")

    async def _rests(self, member: Member) -> bool:
        return all(rank["running"] == rank["waiting"] == 0 for rank in await self.truth(member))

    async def busy(self, role: str, *, tokens: bool = False) -> int:
        """Wait until the ledger has a request on a worker of a role; return which it is."""
        found: list[int] = []

        async def one() -> bool:
            loads = await self.loads(role)
            found[:] = [at for at, load in enumerate(loads) if load[1 if tokens else 0]]
            return bool(found)

        await until_awaited(one, f"a busy {role} worker")
        return found[0]

    async def faults(self, member: Member, **plan: Any) -> None:
        async with httpx2.AsyncClient() as direct:
            answer = await direct.post(f"{member.url}/_faults", json=plan)
            assert answer.status_code == 200, answer.text

    async def truth(self, member: Member) -> list[dict[str, Any]]:
        async with httpx2.AsyncClient() as direct:
            ranks: list[dict[str, Any]] = (await direct.get(f"{member.url}/_truth")).json()["ranks"]
            return ranks


@asynccontextmanager
async def pairs(
    engine: str,
    *options: str,
    prefill: int = 1,
    decode: int = 1,
    both: int = 0,
    apart: bool = False,
    decode_options: Sequence[str] = (),
    router_options: Sequence[str] = (),
) -> AsyncIterator[Pairs]:
    """Run so many workers of each role, each in a process of its own if they are to be kept `apart`.

    On vLLM the router is told the roles, SGLang says them.
    """
    found = Pairs()
    async with AsyncExitStack() as stack:

        async def start(role: str, count: int) -> None:
            loop = ("--loop", role) if engine == "sglang" and role != "both" else ()
            more = decode_options if role == "decode" else ()
            workers = fleet("--engine", engine, *loop, *options, *more, count=count)
            running = await stack.enter_async_context(workers)
            getattr(found, role).extend(Member(worker["url"], running) for worker in running.workers)

        counts = {"prefill": prefill, "decode": decode, "both": both}
        starts = (
            [(role, 1) for role, count in counts.items() for _ in range(count)] if apart else counts.items()
        )
        await asyncio.gather(*(start(role, count) for role, count in starts if count))
        workers = [
            url + (f",role={role}" if engine == "vllm" else "") for role in counts for url in found.urls(role)
        ]
        found.front = front = await stack.enter_async_context(router(workers, *router_options))
        found.client = await stack.enter_async_context(httpx2.AsyncClient(base_url=front.url, timeout=60.0))
        await joined(found.client, len(workers))
        yield found
